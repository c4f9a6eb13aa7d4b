"""Changes as they are shown in ``GET /changes`` and among the last changes of one pool."""

from poolmuster.api.shapes import AddedEntry, ChangedEntry, ChangeEntry, CompletenessEntry, RemovedEntry, pool_of
from poolmuster.model.change import Change, ChangeKind
from poolmuster.model.source import is_complete


def change_entries(boot_id: str, changes: list[Change]) -> list[ChangeEntry]:
    """``changes`` in the form of the interface."""
    return [_entry(f"{boot_id}.{change.number}", change) for change in changes]


def _entry(revision: str, change: Change) -> ChangeEntry:
    at_ms, pool, removal = change.at_ms, change.pool, change.removal
    if pool is None:
        return CompletenessEntry(
            revision=revision, at_ms=at_ms, complete=is_complete(change.sources), sources=change.sources
        )
    if removal is not None:
        return RemovedEntry(
            revision=revision,
            at_ms=at_ms,
            key=pool.key,
            cause=removal.cause,
            reason=removal.reason,
            detail=removal.detail,
        )
    kind = AddedEntry if change.kind is ChangeKind.ADDED else ChangedEntry
    return kind(revision=revision, at_ms=at_ms, key=pool.key, pool=pool_of(pool.body))
