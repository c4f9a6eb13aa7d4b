"""Whom a service without credentials answers: requests that name this machine's loopback.

The check of ``Host`` keeps a web page from reading a developer's service through a name that its owner lets point to
127.0.0.1 (DNS rebinding).
"""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether ``host``, as a ``Host`` header has it but without brackets, names this machine only.

    To decide where to listen is not its business (`poolmuster.model.address.Address.is_loopback` does): a browser
    keeps every ``*.localhost`` on this machine, a resolver may not.
    """
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def host_of(header: str) -> str | None:
    """The host in a ``Host`` header, without port and brackets; ``None`` where the header is malformed."""
    header = header.strip(" \t")
    if header.startswith("["):
        host, bracket, rest = header[1:].partition("]")
        return host if bracket and (not rest or _is_port(rest)) else None
    host, colon, port = header.partition(":")
    return host if host and (not colon or _is_port(":" + port)) else None


def _is_port(text: str) -> bool:
    return text[:1] == ":" and ((text[1:].isascii() and text[1:].isdigit()) or text == ":")
