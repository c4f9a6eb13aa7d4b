"""Changes as they are shown in ``GET /changes`` and among the last changes of one pool."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice

import msgspec

from poolmuster.api.schemas import (
    AddedEntry,
    ChangedEntry,
    ChangeEntry,
    Changes,
    CompletenessEntry,
    RemovedEntry,
    pool_of,
)
from poolmuster.model.change import ChangeKind, PoolChange
from poolmuster.model.selector import Selector
from poolmuster.model.source import is_complete
from poolmuster.registry.filtering import filter_change

CHANGES_A_PIECE = 100
EMPTY_LIST = b'{"changes":['


async def stream_changes(
    answer: Changes, changes: list[PoolChange], selector: Selector, boot_id: str
) -> AsyncIterator[bytes]:
    """``answer``, which is without changes, as JSON with those of ``changes`` that ``selector`` lets see.

    In pieces, each put together when the one before was taken: all that is remembered may be tens of megabytes.
    """
    encoded = msgspec.json.encode(answer)
    yield EMPTY_LIST
    separator = b""
    left = iter(changes)
    while piece := list(islice(left, CHANGES_A_PIECE)):
        seen = [shown for change in piece if (shown := filter_change(change, selector)) is not None]
        if seen:
            yield separator + msgspec.json.encode(change_entries(boot_id, seen))[1:-1]
            separator = b","
        await asyncio.sleep(0)
    yield encoded[len(EMPTY_LIST) :]


def change_entries(boot_id: str, changes: Iterable[PoolChange]) -> list[ChangeEntry]:
    """``changes`` in the form of the interface."""
    return [_entry(f"{boot_id}.{change.number}", change) for change in changes]


def _entry(revision: str, change: PoolChange) -> ChangeEntry:
    at_ms, pool, removal = change.at_ms, change.record, change.removal
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
