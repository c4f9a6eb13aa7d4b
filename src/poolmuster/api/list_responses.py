"""Answers to ``GET /pools``: encoded on the first request after a change, then only sent.

An answer's ETag covers the pools, ``complete`` and the states of the sources, but not the revision, so it is equal
on all instances and boots that say the same.
"""

import asyncio
import weakref
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from hashlib import blake2b

import msgspec

from poolmuster.api.query import ListQuery
from poolmuster.model.errors import Unavailable
from poolmuster.model.registration import DIGEST_BITS, Pool
from poolmuster.model.selector import Selector
from poolmuster.model.source import SourceKind, SourceState
from poolmuster.registry.record_list import Page, RecordList
from poolmuster.service.completeness import Completeness
from poolmuster.service.instance import Instance

ANSWERS_LIMIT = 64
GZIP_FROM_BYTES = 1024
GZIP_LEVEL = 1
GZIPPED_LIMIT = 8
"""Compressed lists in memory at once, those that slow clients still read included; beyond it none is compressed."""

POOLS_A_PIECE = 256
PAGE_BYTES = 512 * 1024
PIECE_BYTES = 64 * 1024
"""What is made for one client alone, or kept by it alone once the list moves on, stays in memory for as long as that
client does not read, so it is about so long. A page of more than `PAGE_BYTES` is sent in such pieces too."""


class ListResponse:
    """One list at one moment: what stands before the pools, their pages, and what stands behind."""

    __slots__ = ("__weakref__", "complete", "etag", "head", "made_s", "number", "pages", "revision", "tail", "zipping")

    def __init__(
        self,
        *,
        pages: list[Page[Pool]],
        tail: bytes,
        revision: str,
        number: int,
        complete: bool,
        etag: bytes,
        made_s: int,
    ) -> None:
        self.head = b'{"pools":['
        self.pages = pages
        self.tail = tail
        self.revision = revision.encode()
        self.number = number
        self.complete = complete
        self.etag = etag
        self.made_s = made_s
        self.zipping: asyncio.Future[bytes] | None = None

    @property
    def size_bytes(self) -> int:
        """Length of the body. The first pool has no comma before it."""
        pools_bytes = sum([page.size_bytes for page in self.pages]) - bool(self.pages)
        return len(self.head) + pools_bytes + len(self.tail)

    def pieces(self) -> list[bytes | memoryview]:
        """The body but for ``head`` and ``tail``, all joined at once."""
        return [self._piece(index) for index in range(len(self.pages))]

    def _piece(self, index: int) -> bytes | memoryview:
        joined = self.pages[index].encoded()
        return joined if index else memoryview(joined)[1:]

    async def stream(self) -> AsyncIterator[bytes | memoryview]:
        """The body in pieces of a page at most, each joined only when the one before was taken."""
        yield self.head
        for index, page in enumerate(self.pages):
            if page.size_bytes <= PAGE_BYTES:
                yield self._piece(index)
                continue
            separator = b"," if index else b""
            for piece in _pieces(pool.body for pool in page.records):
                yield separator + piece
                separator = b","
        yield self.tail


def _pieces(bodies: Iterable[bytes]) -> Iterator[bytes]:
    """``bodies`` joined by commas, in pieces that end when they are long enough."""
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


def _gzip(pieces: list[bytes | memoryview]) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*map(compressor.compress, pieces), compressor.flush()])


class ListCache:
    """The latest answer for each selector."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._catalog = instance.catalog
        self._answers: OrderedDict[Selector, ListResponse] = OrderedDict()
        self._gzipped: weakref.WeakSet[ListResponse] = weakref.WeakSet()

    def require_readable(self) -> None:
        """Raise `Unavailable` while a source of pools was never read: an unread source is not an empty list."""
        for source in self._catalog.completeness().sources:
            if source.state is SourceState.UNKNOWN and source.kind in (SourceKind.TABLE, SourceKind.TOPOLOGY):
                why = source.detail or source.reason
                raise Unavailable(f"The {source.kind} {source.name} has not been read yet: {why}.")

    async def answer(self, query: ListQuery) -> ListResponse:
        """The list as it is now, without leases. Raises `Unavailable` where it was never read."""
        self.require_readable()
        if query.lease or query.unlisted:
            # Asked for by people, and different each time: not worth a place among the answers.
            return self._make(await self._instance.views.pools(query.selector), query)
        made = self._answers.get(query.selector)
        if made is not None and self._still_good(made):
            self._answers.move_to_end(query.selector)
            return made
        answer = self._make(await self._instance.views.pools(query.selector), query)
        self._answers[query.selector] = answer
        self._answers.move_to_end(query.selector)
        if len(self._answers) > ANSWERS_LIMIT:
            self._answers.popitem(last=False)
        return answer

    def _still_good(self, made: ListResponse) -> bool:
        complete = self._catalog.completeness().complete
        if made.number != self._catalog.change_log.number:
            return False
        return complete or made.made_s == self._instance.clock.monotonic_ms() // 1000

    def _make(self, listing: RecordList[Pool], query: ListQuery) -> ListResponse:
        now = self._catalog.completeness()
        extra = b',"unlisted":[]' if query.unlisted else b""
        tail = b'],"complete":%b,"revision":"%b","sources":%b%b}' % (
            b"true" if now.complete else b"false",
            self._catalog.revision.encode(),
            msgspec.json.encode(now.sources),
            extra,
        )
        return ListResponse(
            pages=listing.pages(),
            tail=tail,
            revision=self._catalog.revision,
            number=self._catalog.change_log.number,
            complete=now.complete,
            etag=b"" if query.lease else etag_of(listing, now, extra),
            made_s=self._instance.clock.monotonic_ms() // 1000,
        )

    async def gzipped(self, answer: ListResponse) -> bytes | None:
        """The body, compressed once and off the event loop; ``None`` where that would take too much memory."""
        if answer.zipping is None:
            if len(self._gzipped) >= GZIPPED_LIMIT:
                return None
            self._gzipped.add(answer)
            pieces = [answer.head, *answer.pieces(), answer.tail]
            answer.zipping = asyncio.ensure_future(asyncio.to_thread(_gzip, pieces))
        return await asyncio.shield(answer.zipping)

    async def stream_with_leases(self, answer: ListResponse) -> AsyncIterator[bytes]:
        """The body of ``answer`` with each pool's lease, as it is when its piece is taken."""
        yield answer.head
        separator = b""
        for page in answer.pages:
            for piece in _pieces(map(self.with_lease, page.records)):
                yield separator + piece
                separator = b","
                await asyncio.sleep(0)
        yield answer.tail

    def with_lease(self, pool: Pool) -> bytes:
        """The pool with its lease under ``status``."""
        lease = self._catalog.lease(pool.key)
        return pool.body_with_status(b'{"lease":%b}' % msgspec.json.encode(lease))


def etag_of(listing: RecordList[Pool], now: Completeness, extra: bytes = b"") -> bytes:
    """A weak ETag: equal exactly where pools, ``complete`` and source states are."""
    content = [listing.digest.to_bytes(DIGEST_BITS // 8), repr(now.state_key).encode(), b"%d" % now.complete, extra]
    return b'W/"%b"' % blake2b(b"\0".join(content), digest_size=16).hexdigest().encode()
