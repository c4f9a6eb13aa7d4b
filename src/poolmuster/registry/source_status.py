"""How each source stands, and since when: what lists show of it."""

import msgspec

from poolmuster.model.source import SourceInfo, SourceKind, SourceReason, SourceState


class SourceStatus(msgspec.Struct, frozen=True):
    """The state of one source. ``clears_in_ms`` where it clears by itself."""

    state: SourceState
    reason: SourceReason | None = None
    detail: str | None = None
    clears_in_ms: int | None = None


FRESH = SourceStatus(SourceState.FRESH)


class SourceTracker:
    """Remembers since when each source stands as it does. Times are wall clock, for people."""

    def __init__(self) -> None:
        self._since: dict[tuple[SourceKind, str], tuple[SourceStatus, int]] = {}

    def source(
        self, kind: SourceKind, name: str, status: SourceStatus, wall_ms: int, good_at_ms: int | None = None
    ) -> SourceInfo:
        """The source as it is shown; ``good_at_ms`` is when it was last good, if ever."""
        before, since_at_ms = self._since.get((kind, name), (None, wall_ms))
        if before is None or (before.state, before.reason) != (status.state, status.reason):
            since_at_ms = wall_ms
        self._since[kind, name] = (status, since_at_ms)
        return SourceInfo(
            kind=kind,
            name=name,
            state=status.state,
            reason=status.reason,
            detail=status.detail,
            since_at_ms=since_at_ms,
            last_good_at_ms=None if status.state is SourceState.FRESH else good_at_ms,
            clears_in_ms=status.clears_in_ms,
        )

    def retain(self, sources: tuple[SourceInfo, ...]) -> None:
        """Forget all but these."""
        self._since = {key: self._since[key] for key in ((source.kind, source.name) for source in sources)}
