"""What the statuses of all sources mean together: is the list readable, and is it complete (rules L7, L8)?"""

from collections.abc import Iterable

import msgspec

from poolmuster.model.errors import Unavailable
from poolmuster.model.source import SourceInfo, SourceKind, SourceReason, SourceState, is_complete
from poolmuster.ports.clock import Clock
from poolmuster.ports.source import Source
from poolmuster.registry.source_status import SourceStatus, SourceTracker

FOREVER_MS = 2**62


class Completeness(msgspec.Struct, frozen=True):
    """Whether the list is complete, and the sources for which it is or is not.

    It holds until ``valid_until_ms`` of the monotonic clock, the earliest freshness limit of its sources.
    """

    complete: bool
    sources: tuple[SourceInfo, ...]
    valid_until_ms: int

    @property
    def state_key(self) -> tuple[object, ...]:
        """Equal for two moments between which watchers need no event."""
        return tuple(source.state_key for source in self.sources)

    def require_readable(self) -> None:
        """Raise `Unavailable` while a source of pools was never read: that is no empty list (rule L7)."""
        for source in self.sources:
            if source.state is SourceState.UNKNOWN and source.kind in (SourceKind.TABLE, SourceKind.TOPOLOGY):
                why = source.detail or source.reason
                raise Unavailable(f"The {source.kind} {source.name} has not been read yet: {why}.")


class MonitoredSource:
    """One source and the statuses that count for the list.

    While updates are being applied (``applying`` is their number) the source may call itself fresh although the list
    does not have all of them yet. Until the end of the last one a fresh status counts as it was before.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._held: tuple[SourceStatus, ...] = ()
        self.applying = 0

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        """The statuses that count at ``now_ms``."""
        statuses = self._source.statuses(now_ms)
        if self.applying:
            self.hold_stale(statuses)
        else:
            self._held = statuses
        return tuple(status.at(now_ms) for status in self._held)

    def hold_stale(self, statuses: tuple[SourceStatus, ...]) -> None:
        """Let those of ``statuses`` count that are not fresh, or that were not there before."""
        held = {(status.kind, status.name): status for status in self._held}
        for status in statuses:
            if not status.is_fresh or (status.kind, status.name) not in held:
                held[status.kind, status.name] = status
        self._held = tuple(held.values())


class SourceMonitor:
    """All sources, and the completeness of the list as of the last `refresh`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sources: list[MonitoredSource] = []
        self._tracker = SourceTracker()
        self.value = Completeness(complete=False, sources=(), valid_until_ms=FOREVER_MS)
        self.due_ms = FOREVER_MS
        """When a status changes next by itself (monotonic)."""

    def add(self, source: Source) -> MonitoredSource:
        """Add a source, before anything is served."""
        monitored = MonitoredSource(source)
        self._sources.append(monitored)
        self.refresh()
        return monitored

    def refresh(self) -> bool:
        """Ask every source for its statuses. Returns whether watchers need an event for the difference."""
        now_ms = self._clock.monotonic_ms()
        statuses = [status for source in self._sources for status in source.statuses(now_ms)]
        sources = self._tracker.track(statuses, now_ms, self._clock.wall_ms())
        before = self.value
        self.value = Completeness(
            complete=is_complete(sources),
            sources=before.sources if sources == before.sources else sources,
            valid_until_ms=_fresh_until_ms(statuses),
        )
        clear_ms = (status.clears_at_ms for status in statuses if status.clears_at_ms is not None)
        self.due_ms = min(self.value.valid_until_ms + 1, min(clear_ms, default=FOREVER_MS))
        return self.value.state_key != before.state_key

    def invalidate(self) -> None:
        """The value holds no longer, whatever its end was: this process was stopped."""
        self.value = msgspec.structs.replace(self.value, valid_until_ms=-1)

    def doubtful(self) -> Completeness:
        """The value after its end: incomplete, with the fresh sources as stale."""
        if not self.value.complete:
            return self.value
        sources = tuple(
            msgspec.structs.replace(
                source,
                state=SourceState.STALE,
                reason=SourceReason.TIMEOUT,
                detail="Its status was not checked in time: this instance may have been stopped.",
            )
            for source in self.value.sources
        )
        return Completeness(complete=False, sources=sources, valid_until_ms=-1)


def _fresh_until_ms(statuses: Iterable[SourceStatus]) -> int:
    return min(
        (status.fresh_until_ms for status in statuses if status.is_fresh and status.fresh_until_ms is not None),
        default=FOREVER_MS,
    )
