"""The JSON of the interface: lists in pieces, single pools, change entries, and the watch's events in both formats.

Pools are never encoded here: their canonical bytes are copied. Everything else is encoded from the types of
`poolmuster.api.schemas`, of which the OpenAPI document is made.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, cast, get_args

import msgspec
from starlette.responses import Response

from poolmuster.api import schemas
from poolmuster.model.change import PoolChange
from poolmuster.model.registration import Pool
from poolmuster.model.schema import LeaseStatus
from poolmuster.model.selector import Selector
from poolmuster.model.source import is_complete
from poolmuster.registry.change_filter import filter_change
from poolmuster.registry.record_list import Page
from poolmuster.service.completeness import Completeness

POOLS_A_PIECE = 256
PAGE_BYTES = 512 * 1024
PIECE_BYTES = 64 * 1024
"""Size of a piece that is made for one client. It stays in memory until that client reads it. A page of more than
`PAGE_BYTES` is sent in such pieces too, as it stays in memory for a slow client once the list has changed."""

CHANGES_A_PIECE = 100
LIST_HEAD = b'{"pools":['
CHANGES_HEAD = b'{"changes":['

ENTRIES = {kind.__struct_config__.tag: kind for kind in get_args(schemas.ChangeEntry)}
EVENTS = {kind.__struct_config__.tag: kind for kind in get_args(schemas.WatchEvent)}
"""The types by their member ``type``, which for changes is the kind."""

Piece = bytes | memoryview
PoolEncoder = Callable[[Pool], bytes]


def json_response(content: object) -> Response:
    """A response that must not be used again without asking."""
    return Response(msgspec.json.encode(content), media_type="application/json", headers={"cache-control": "no-cache"})


def pool_of(body: bytes) -> schemas.ListedPool:
    """The pool with the canonical form ``body``, as a part of a response: these bytes are copied, unread."""
    return cast("schemas.ListedPool", msgspec.Raw(body))


def pool_with_lease(pool: Pool, lease: LeaseStatus | None) -> bytes:
    """The pool's JSON with its lease under ``status``."""
    return pool.body_with_status(b'{"lease":%b}' % msgspec.json.encode(lease))


class EncodedList:
    """The JSON of one list at one moment: the pages of its pools, and what follows them."""

    def __init__(self, pages: list[Page[Pool]], revision: str, now: Completeness, *, unlisted: bool) -> None:
        self.pages = pages
        self.tail = b'],"complete":%b,"revision":"%b","sources":%b%b}' % (
            msgspec.json.encode(now.complete),
            revision.encode(),
            msgspec.json.encode(now.sources),
            b',"unlisted":[]' if unlisted else b"",
        )

    @property
    def size_bytes(self) -> int:
        """Length of the JSON. The first pool has no comma before it."""
        pools_bytes = sum([page.size_bytes for page in self.pages]) - bool(self.pages)
        return len(LIST_HEAD) + pools_bytes + len(self.tail)

    def whole(self) -> list[Piece]:
        """All pieces, with every page encoded at once."""
        return [LIST_HEAD, *map(self._page, range(len(self.pages))), self.tail]

    def _page(self, index: int) -> Piece:
        encoded = self.pages[index].encoded()
        return encoded if index else memoryview(encoded)[1:]

    async def pieces(self, encode_pool: PoolEncoder | None = None) -> AsyncIterator[Piece]:
        """Pieces of a page at most, each encoded when the one before was taken.

        ``encode_pool`` encodes each pool; without it the canonical form is sent.
        """
        yield LIST_HEAD
        for index, page in enumerate(self.pages):
            if encode_pool is None and page.size_bytes <= PAGE_BYTES:
                yield self._page(index)
                continue
            separator = b"," if index else b""
            bodies = (pool.body for pool in page.records) if encode_pool is None else map(encode_pool, page.records)
            for piece in _joined(bodies):
                yield separator + piece
                separator = b","
                await asyncio.sleep(0)
        yield self.tail


def _joined(bodies: Iterable[bytes]) -> Iterator[bytes]:
    """``bodies`` joined by commas, in pieces of at least `PIECE_BYTES` or `POOLS_A_PIECE` pools."""
    piece: list[bytes] = []
    size_bytes = 0
    for body in bodies:
        piece.append(body)
        size_bytes += len(body)
        if size_bytes >= PIECE_BYTES or len(piece) == POOLS_A_PIECE:
            yield b",".join(piece)
            piece, size_bytes = [], 0
    if piece:
        yield b",".join(piece)


def _members(change: PoolChange, encode_pool: PoolEncoder | None = None) -> dict[str, Any]:
    """The members that an entry and an event of ``change`` have in common."""
    before, after, removal = change.before, change.after, change.removal
    if before is not None and removal is not None:
        return {"key": before.key, "cause": removal.cause, "reason": removal.reason, "detail": removal.detail}
    if after is not None:
        return {"pool": pool_of(after.body if encode_pool is None else encode_pool(after))}
    return {"complete": is_complete(change.sources), "sources": change.sources}


def change_entries(boot_id: str, changes: Iterable[PoolChange]) -> list[schemas.ChangeEntry]:
    """``changes`` as ``GET /changes`` and a single pool show them."""
    return [_entry(f"{boot_id}.{change.number}", change) for change in changes]


def _entry(revision: str, change: PoolChange) -> Any:
    key = {} if change.after is None else {"key": change.after.key}
    return ENTRIES[change.kind](revision=revision, at_ms=change.at_ms, **key, **_members(change))


async def encode_changes(
    response: schemas.Changes, changes: list[PoolChange], selector: Selector, boot_id: str
) -> AsyncIterator[bytes]:
    """The JSON of ``response``, which has no entries, with those of ``changes`` that ``selector`` shows.

    It comes in pieces, each encoded when the one before was taken: the whole change log may be tens of megabytes.
    """
    encoded = msgspec.json.encode(response)
    yield CHANGES_HEAD
    separator = b""
    left = iter(changes)
    while batch := list(islice(left, CHANGES_A_PIECE)):
        visible = [seen for change in batch if (seen := filter_change(change, selector)) is not None]
        if visible:
            yield separator + msgspec.json.encode(change_entries(boot_id, visible))[1:-1]
            separator = b","
        await asyncio.sleep(0)
    yield encoded[len(CHANGES_HEAD) :]


class EventEncoder(msgspec.Struct, frozen=True, kw_only=True):
    """Encodes the events of one watch: as server-sent events (``sse``), or one JSON object a line.

    ``digest`` is that of the watch's query; ``encode_pool`` is as for `EncodedList.pieces`.
    """

    boot_id: str
    digest: str
    sse: bool
    encode_pool: PoolEncoder | None

    def event_id(self, number: int) -> str:
        """``BOOT.N.F``, from which a stream can resume."""
        return f"{self.boot_id}.{number}.{self.digest}"

    def number_of(self, event_id: str) -> int | None:
        """N of an event's id; ``None`` where the id is of another boot or another query."""
        boot_and_number, _, digest = event_id.strip().rpartition(".")
        boot, _, number = boot_and_number.rpartition(".")
        if boot != self.boot_id or digest != self.digest or not (number.isascii() and number.isdigit()):
            return None
        return int(number) if len(number) < 20 else None

    def change(self, change: PoolChange) -> bytes:
        """An ``added``, ``changed``, ``removed`` or ``completeness`` event."""
        return self._event(EVENTS[change.kind], change.number, **_members(change, self.encode_pool))

    def completeness(self, number: int, now: Completeness) -> bytes:
        """A ``completeness`` event that is no change."""
        return self._event(schemas.CompletenessEvent, number, complete=now.complete, sources=now.sources)

    def closing(self, number: int, reason: str) -> bytes:
        """The last event of a stream."""
        return self._event(schemas.ClosingEvent, number, reason=reason)

    def ping(self, number: int) -> bytes:
        """A keep-alive."""
        return b": ping\n\n" if self.sse else self._event(schemas.PingEvent, number)

    async def snapshot(self, number: int, pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
        """A ``snapshot`` event in pieces, made of a list's ``pieces``."""
        event_id = self.event_id(number).encode()
        start = b'{"type":"snapshot","id":"%b",' % event_id
        if self.sse:
            start = b"id: %b\ndata: %b" % (event_id, start)
        async for piece in pieces:
            yield start + bytes(piece)[1:] if start else piece
            start = b""
        yield b"\n\n" if self.sse else b"\n"

    def _event(self, kind: type[msgspec.Struct], number: int, **members: Any) -> bytes:
        event_id = self.event_id(number)
        encoded = msgspec.json.encode(kind(id=event_id, revision=f"{self.boot_id}.{number}", **members))
        return b"id: %b\ndata: %b\n\n" % (event_id.encode(), encoded) if self.sse else encoded + b"\n"
