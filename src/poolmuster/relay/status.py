"""The state of one pool, as ``/status`` shows it and metrics count it."""

from collections import Counter
from enum import StrEnum

import msgspec

from poolmuster.model.change import DeregistrationReason
from poolmuster.relay.heartbeat import Phase


class ServerState(StrEnum):
    """The state of a model server by its probes."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The model server. ``failed_probes`` counts those in a row; ``detail`` is of the last failed one.

    ``models_left_out`` counts the models that it lists beyond the limit of a probe.
    """

    url: str
    state: ServerState
    reason: DeregistrationReason | None = None
    detail: str | None = None
    failed_probes: int = 0
    models: tuple[str, ...] = ()
    models_left_out: int = 0
    last_probe_at_ms: int | None = None


class DiscoveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Discovery, for one pool. ``problem`` is the failure of the last attempt, ``refused`` a ``4xx`` that stays."""

    url: str
    listed: bool
    conflict: bool
    refused: bool
    problem: str | None = None
    last_good_at_ms: int | None = None
    lease_ends_in_ms: int | None = None
    heartbeat_interval_ms: int


class RelayPoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of a relay. ``file_problems`` name unusable files, whose last good content is in use."""

    key: str
    relay_id: str
    phase: Phase
    since_at_ms: int
    advertise_url: str
    server: ServerStatus
    discovery: DiscoveryStatus
    file_problems: tuple[str, ...] = ()

    @property
    def fault(self) -> str | None:
        """Why a pool whose server is up is not listed, or ``None`` where nothing is wrong."""
        if self.server.state is ServerState.UNKNOWN:
            return "its server has not been probed yet"
        if self.server.state is ServerState.DOWN:
            return None
        if self.discovery.refused:
            return f"discovery refuses it: {self.discovery.problem}"
        if not self.discovery.listed:
            return f"it is not listed: {self.discovery.problem or 'the first heartbeat is under way'}"
        return None


class PoolCounts:
    """Counters of one pool since the relay started."""

    def __init__(self) -> None:
        self.heartbeats: Counter[str] = Counter()
        self.probes: Counter[str] = Counter()
        self.deregistrations: Counter[str] = Counter()
        self.leases_lost = 0
