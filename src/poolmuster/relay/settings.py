"""Settings of a relay, parsed once and frozen, and the rules for the URLs in them."""

import contextlib
import ipaddress
import socket
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from poolmuster.model.key import PoolKey

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"
DEFAULT_HEALTH_PATH = "/health"
LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"})


class OnExit(StrEnum):
    """What a relay that stops does with its pools."""

    DEREGISTER = "deregister"
    LEAVE = "leave"


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: its key, the server that is probed, and the facts that are registered.

    ``frontend_url`` and ``advertise_url`` are roots, without ``/v1``. ``labels`` win over those of ``labels_file``.
    """

    key: PoolKey
    frontend_url: str
    advertise_url: str
    health_path: str = DEFAULT_HEALTH_PATH
    token_file: str | None = None
    ca_cert: str | None = None
    region: str | None = None
    availability_zone: str | None = None
    weight: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    labels_file: str | None = None
    aliases: tuple[tuple[str, str], ...] = ()

    def same_server(self, other: "PoolSettings") -> bool:
        """Whether both probe one server in one way, so that a probe by one counts for the other."""
        mine = (self.frontend_url, self.health_path, self.token_file, self.ca_cert)
        return mine == (other.frontend_url, other.health_path, other.token_file, other.ca_cert)


class PoolDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that flags give to every pool without its own."""

    cluster_id: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    health_path: str = DEFAULT_HEALTH_PATH
    region: str | None = None
    availability_zone: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    labels_file: str | None = None


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between the starts of two probes, seconds for a whole one, and failed ones until a server is down."""

    interval_s: float = 2.0
    timeout_s: float = 3.0
    unhealthy_after: int = 2


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A relay. With ``pools_file`` the pools are those of the file, and ``pool`` is ``None``."""

    discovery: tuple[str, ...]
    pool: PoolSettings | None
    pools_file: str | None
    defaults: PoolDefaults
    probe: ProbeSettings
    on_exit: OnExit


def pod_namespace(path: Path = SERVICE_ACCOUNT_NAMESPACE) -> str:
    """The namespace of the pod this runs in, or ``default`` outside of Kubernetes."""
    try:
        return path.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE


def server_root(url: str) -> tuple[str, bool]:
    """``url`` as the root to which ``/v1/...`` is appended, and whether a ``/v1`` at its end was taken off."""
    root = url.rstrip("/")
    if urlsplit(root).path.endswith("/v1"):
        return root.removesuffix("/v1").rstrip("/"), True
    return root, False


def is_local(url: str) -> bool:
    """Whether the host of ``url`` means the machine that reads it: loopback or unspecified, by number or by name.

    Every form of an address counts (``127.1``, ``0x7f000001``, ``[::ffff:127.0.0.1]``). Names are not resolved.
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
    """The first discovery URL on another machine while ``advertise_url`` means this one only, if any."""
    return next((url for url in discovery if not is_local(url)), None) if is_local(advertise_url) else None


def validate_health_path(path: str) -> str | None:
    """Why ``path`` cannot be the path of a health page, or ``None``."""
    if not path.startswith("/"):
        return "must begin with a slash"
    if any(not 0x21 <= ord(char) <= 0x7E or char == "#" for char in path):
        return "must be visible ASCII without a fragment, with other characters percent-encoded"
    return None
