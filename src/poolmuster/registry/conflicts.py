"""Relays that register one key in turn (rule L9).

Relay A, then B, then A again within one lease is a conflict: two deployments share a key, or a rolling update of a
relay overlaps. It ends when a lease has passed without another switch. A deregistration in between does not matter, as
the other relay had registered the key before.
"""

from typing import Generic, TypeVar

import msgspec

K = TypeVar("K")

RELAYS_A_POOL_LIMIT = 8
"""How many relays of one pool are remembered at once."""

POOLS_LIMIT = 20_000
"""How many pools' relays are remembered at once; the pool that was first remembered is forgotten first."""

CONFLICTS_LIMIT = 20_000
"""How many conflicts are remembered at once; the one that first began is forgotten first."""


class ConflictSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One conflict: who took turns, since when, and when last (in lease time)."""

    relay_ids: tuple[str, ...]
    since_ms: int
    last_ms: int
    lease_ms: int


class Conflicts(Generic[K]):
    """Which pools have a conflict. Times are lease time, which does not run while the process was stopped."""

    def __init__(self) -> None:
        self._recent_relays: dict[K, dict[str, int]] = {}
        self._spans: dict[K, ConflictSpan] = {}

    def record_deregistration(self, key: K, relay: tuple[str, int]) -> None:
        """``relay`` (its id, and when it last registered) deregistered; a successor may come, and then it again."""
        self._record(key, *relay)

    def latest(self, key: K) -> tuple[str, int] | None:
        """The relay of ``key`` that registered last, and when, of those that are remembered."""
        return max(self._recent_relays.get(key, {}).items(), key=lambda relay: relay[1], default=None)

    def record_switch(self, key: K, previous: tuple[str, int], relay_id: str, now_ms: int, lease_ms: int) -> bool:
        """``relay_id`` registers after ``previous`` (another relay, and when it last did).

        Returns whether a conflict begins by it; one that goes on is not told again.
        """
        self._record(key, *previous)
        seen_ms = self._record(key, relay_id, now_ms)
        if seen_ms is None or now_ms - seen_ms > lease_ms:
            return False
        return self._extend(key, relay_id, previous[0], now_ms, lease_ms)

    def _record(self, key: K, relay_id: str, at_ms: int) -> int | None:
        """Remember that ``relay_id`` registered at ``at_ms``. Returns when it was last seen before."""
        trail = self._recent_relays.setdefault(key, {})
        if len(self._recent_relays) > POOLS_LIMIT:
            del self._recent_relays[next(iter(self._recent_relays))]
        seen_ms = trail.get(relay_id)
        trail[relay_id] = at_ms
        if len(trail) > RELAYS_A_POOL_LIMIT:
            del trail[min(trail, key=lambda each: trail[each])]
        return seen_ms

    def _extend(self, key: K, relay_id: str, other: str, now_ms: int, lease_ms: int) -> bool:
        going_on = self.span(key, now_ms)
        self._spans[key] = ConflictSpan(
            relay_ids=tuple(sorted({relay_id, other, *(going_on.relay_ids if going_on else ())})[:RELAYS_A_POOL_LIMIT]),
            since_ms=going_on.since_ms if going_on else now_ms,
            last_ms=now_ms,
            lease_ms=lease_ms,
        )
        if len(self._spans) > CONFLICTS_LIMIT:
            del self._spans[next(iter(self._spans))]
        return going_on is None

    def span(self, key: K, now_ms: int) -> ConflictSpan | None:
        """The conflict that ``key`` has now."""
        span = self._spans.get(key)
        return span if span is not None and now_ms - span.last_ms < span.lease_ms else None

    def all(self, now_ms: int) -> dict[K, ConflictSpan]:
        """Every conflict there is now."""
        return {key: span for key in self._spans if (span := self.span(key, now_ms)) is not None}

    def evict(self, now_ms: int, lease_ms: int) -> None:
        """Drop what can no longer matter, ``lease_ms`` being the longest lease in use."""
        self._spans = self.all(now_ms)
        self._recent_relays = {
            key: trail
            for key, trail in self._recent_relays.items()
            if any(now_ms - at < lease_ms for at in trail.values())
        }
