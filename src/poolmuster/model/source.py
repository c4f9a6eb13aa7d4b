"""Sources: where a list comes from, and for each whether it can be trusted right now.

A list is complete exactly when every source is fresh.
"""

from enum import StrEnum

import msgspec


class SourceKind(StrEnum):
    """What a source is."""

    MEMORY = "memory"
    TABLE = "table"
    REGION = "region"
    PEER = "peer"
    DNS = "dns"
    TOPOLOGY = "topology"


class SourceState(StrEnum):
    """``stale``: it was read, or waits; ``unknown``: it was never read."""

    FRESH = "fresh"
    STALE = "stale"
    UNKNOWN = "unknown"


class SourceReason(StrEnum):
    """Why a source is not fresh: a closed set."""

    WARMING_UP = "warming_up"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    THROTTLED = "throttled"
    ACCESS_DENIED = "access_denied"
    CREDENTIALS_EXPIRED = "credentials_expired"
    CREDENTIALS_MISSING = "credentials_missing"
    TABLE_MISSING = "table_missing"
    CLOCK_SKEW = "clock_skew"
    REPLICATION = "replication"
    DNS_FAILED = "dns_failed"
    PEERS_MISSING = "peers_missing"
    FORBIDDEN = "forbidden"
    WATCH_FAILING = "watch_failing"
    BAD_ANSWER = "bad_answer"
    LOAD_BALANCER = "load_balancer"
    INTERNAL = "internal"


class SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One source as lists show it.

    ``since_at_ms`` is when it entered its state; ``last_good_at_ms`` is null while it is fresh or was never read;
    ``clears_in_ms`` is how long it will stay as it is if nothing else happens, where that is known.
    """

    kind: SourceKind
    name: str
    state: SourceState
    reason: SourceReason | None = None
    detail: str | None = None
    since_at_ms: int
    last_good_at_ms: int | None = None
    clears_in_ms: int | None = None

    @property
    def state_key(self) -> tuple[str, str, str, str | None]:
        """What makes two of its showings the same state."""
        return (self.kind, self.name, self.state, self.reason)


def is_complete(sources: tuple[SourceInfo, ...]) -> bool:
    """Whether a list from these sources is known to hold every live pool."""
    return all(source.state is SourceState.FRESH for source in sources)
