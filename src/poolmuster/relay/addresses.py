"""What the relay asks of URLs: the root of a model server's, and whether others could reach a host at all."""

import contextlib
import ipaddress
import socket
from urllib.parse import urlsplit

LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"})


def server_root(url: str) -> tuple[str, bool]:
    """``url`` as the root to which ``/v1/...`` is appended, and whether a ``/v1`` at its end was taken off."""
    root = url.rstrip("/")
    if urlsplit(root).path.endswith("/v1"):
        return root.removesuffix("/v1").rstrip("/"), True
    return root, False


def is_local(url: str) -> bool:
    """Whether the host of ``url`` means the machine that reads it: loopback or unspecified, by number or by name.

    Every way of writing an address counts (``127.1``, ``0x7f000001``, ``[::ffff:127.0.0.1]``). Names are judged by
    themselves and not resolved.
    """
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    if host in LOCAL_NAMES or host.endswith((".localhost", ".localhost.localdomain")):
        return True
    address = _address(host.partition("%")[0])
    if address is None:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback or (mapped or address).is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    with contextlib.suppress(OSError, UnicodeError):
        return ipaddress.IPv4Address(socket.inet_aton(host))
    return None


def unreachable_announcement(advertise_url: str, discovery: tuple[str, ...]) -> str | None:
    """The first discovery URL that stands elsewhere while ``advertise_url`` names this machine only, if any."""
    return next((url for url in discovery if not is_local(url)), None) if is_local(advertise_url) else None
