"""What a relay is told to do, parsed once and frozen."""

from enum import StrEnum
from pathlib import Path

import msgspec

from poolmuster.model.key import PoolKey

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"
DEFAULT_HEALTH_PATH = "/health"


class OnExit(StrEnum):
    """What a relay that stops does with its pools."""

    DEREGISTER = "deregister"
    LEAVE = "leave"


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: its key, the server that is probed, and what is said of it.

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
        """Whether both are about one server, asked in one way: what its probes say of one, they say of the other."""
        mine = (self.frontend_url, self.health_path, self.token_file, self.ca_cert)
        return mine == (other.frontend_url, other.health_path, other.token_file, other.ca_cert)


class PoolDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What flags say for every pool of a pools file that does not say it itself."""

    cluster_id: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    health_path: str = DEFAULT_HEALTH_PATH
    region: str | None = None
    availability_zone: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    labels_file: str | None = None


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How servers are probed: seconds between the starts of two probes, seconds for a whole one, and patience."""

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
