"""The status of each source, and since when it has it."""

from collections.abc import Iterable

import msgspec

from poolmuster.model.source import SourceInfo, SourceKind, SourceReason, SourceState


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one source. Times are monotonic.

    A fresh status is fresh until ``fresh_until_ms``, or without an end where that is ``None``. ``clears_at_ms`` is
    when a stale status ends if nothing else happens; ``last_good_ms`` is the last good read.
    """

    kind: SourceKind
    name: str
    state: SourceState = SourceState.FRESH
    reason: SourceReason | None = None
    detail: str | None = None
    fresh_until_ms: int | None = None
    clears_at_ms: int | None = None
    last_good_ms: int | None = None

    @property
    def is_fresh(self) -> bool:
        return self.state is SourceState.FRESH

    def at(self, now_ms: int) -> "SourceStatus":
        """This status at ``now_ms``: a fresh one becomes stale after its end."""
        if not self.is_fresh or self.fresh_until_ms is None or now_ms <= self.fresh_until_ms:
            return self
        return msgspec.structs.replace(
            self, state=SourceState.STALE, reason=SourceReason.TIMEOUT, detail="The last good read is too long ago"
        )


class SourceTracker:
    """Remembers since when each source has its state and reason. Instants are wall clock, for people."""

    def __init__(self) -> None:
        self._since: dict[tuple[SourceKind, str], tuple[SourceState, SourceReason | None, int]] = {}

    def track(self, statuses: Iterable[SourceStatus], now_ms: int, wall_ms: int) -> tuple[SourceInfo, ...]:
        """The sources as lists show them at ``now_ms``; sources that are not among ``statuses`` are forgotten."""
        since: dict[tuple[SourceKind, str], tuple[SourceState, SourceReason | None, int]] = {}
        shown: list[SourceInfo] = []
        for status in statuses:
            place = (status.kind, status.name)
            known = self._since.get(place)
            if known is None or known[:2] != (status.state, status.reason):
                known = (status.state, status.reason, wall_ms)
            since[place] = known
            good_ms = None if status.is_fresh else status.last_good_ms
            shown.append(
                SourceInfo(
                    kind=status.kind,
                    name=status.name,
                    state=status.state,
                    reason=status.reason,
                    detail=status.detail,
                    since_at_ms=known[2],
                    last_good_at_ms=None if good_ms is None else wall_ms - (now_ms - good_ms),
                    clears_in_ms=None if status.clears_at_ms is None else max(0, status.clears_at_ms - now_ms),
                )
            )
        self._since = since
        return tuple(shown)
