"""The address a program listens on, as people write it: ``127.0.0.1:8080``, ``[::1]:8080``, ``:8080``."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import msgspec

from poolmuster.model.errors import InvalidInput

PORT_LIMIT = 65535


class Address(msgspec.Struct, frozen=True):
    """A host and a TCP port. An empty ``host`` means every address of the machine; ``port`` 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        ip = _ip(self.host)
        if ip is None:
            return self.host == "localhost"
        mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
        return (mapped or ip).is_loopback

    @property
    def is_unspecified(self) -> bool:
        """Whether it means every address of the machine, of one family or of both."""
        ip = _ip(self.host)
        return not self.host or (ip is not None and ip.is_unspecified)


def parse_address(text: str) -> Address:
    """Read ``HOST:PORT``. Raises `InvalidInput`."""
    host, colon, port_text = text.rpartition(":")
    if not colon or not port_text.isascii() or not port_text.isdecimal() or not _is_port(port_text):
        raise InvalidInput(f"{text!r} is not an address: HOST:PORT is wanted, with a port from 0 to {PORT_LIMIT}.")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not isinstance(_ip(host), IPv6Address):
            raise InvalidInput(f"{text!r} is not an address: what stands in brackets is not an IPv6 address.")
    elif ":" in host:
        raise InvalidInput(f"{text!r} is not an address: an IPv6 address stands in brackets, as in [::1]:8080.")
    elif any(char.isspace() or not char.isprintable() or char in "/@[]" for char in host):
        raise InvalidInput(f"{text!r} is not an address: the host is not a name or an IP address.")
    return Address(host, int(port_text))


def _is_port(digits: str) -> bool:
    # Looked at as text first: an integer of any length would be taken, and one of thousands of digits is an error.
    significant = digits.lstrip("0")
    return len(significant) <= len(str(PORT_LIMIT)) and int(significant or "0") <= PORT_LIMIT


def _ip(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
