"""How each source stands, and since when: what lists show of it."""

import msgspec

from poolmuster.model.source import Source, SourceKind, SourceReason, SourceState


class Standing(msgspec.Struct, frozen=True):
    """The state of one source. ``clears_in_ms`` where it clears by itself."""

    state: SourceState
    reason: SourceReason | None = None
    detail: str | None = None
    clears_in_ms: int | None = None


FRESH = Standing(SourceState.FRESH)


class Standings:
    """Remembers since when each source stands as it does. Times are wall clock, for people."""

    def __init__(self) -> None:
        self._since: dict[tuple[SourceKind, str], tuple[Standing, int]] = {}

    def source(
        self, kind: SourceKind, name: str, standing: Standing, wall_ms: int, good_at_ms: int | None = None
    ) -> Source:
        """The source as it is shown; ``good_at_ms`` is when it was last good, if ever."""
        before, since_at_ms = self._since.get((kind, name), (None, wall_ms))
        if before is None or (before.state, before.reason) != (standing.state, standing.reason):
            since_at_ms = wall_ms
        self._since[kind, name] = (standing, since_at_ms)
        return Source(
            kind=kind,
            name=name,
            state=standing.state,
            reason=standing.reason,
            detail=standing.detail,
            since_at_ms=since_at_ms,
            last_good_at_ms=None if standing.state is SourceState.FRESH else good_at_ms,
            clears_in_ms=standing.clears_in_ms,
        )

    def keep(self, sources: tuple[Source, ...]) -> None:
        """Forget all but these."""
        self._since = {key: self._since[key] for key in ((source.kind, source.name) for source in sources)}
