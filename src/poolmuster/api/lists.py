"""Answers to ``GET /pools``: encoded on the first request after a change, then only sent.

An answer's ETag covers the pools, ``complete`` and the states of the sources, but not the revision, so it is equal
on all instances and boots that say the same.
"""

import asyncio
import zlib
from collections import OrderedDict
from hashlib import blake2b

import msgspec

from poolmuster.api.query import ListQuery
from poolmuster.core.listing import Listing
from poolmuster.model.errors import Unavailable
from poolmuster.model.registration import DIGEST_BITS, Pool
from poolmuster.model.selector import Selector
from poolmuster.model.source import SourceKind, SourceState
from poolmuster.service.instance import Instance
from poolmuster.service.projection import Completeness

ANSWERS_LIMIT = 64
WHOLE_BYTES = 4 * 1024 * 1024
"""Up to this size an answer is one piece; above, a page is a piece, so that no write is huge."""

GZIP_FROM_BYTES = 1024
GZIP_LEVEL = 1
LEASES_A_TURN = 500


class ListAnswer:
    """One encoded answer. ``pieces`` in order are its body."""

    __slots__ = ("complete", "etag", "made_s", "number", "pieces", "revision", "size_bytes", "zipping")

    def __init__(
        self, pieces: list[bytes], revision: str, number: int, complete: bool, etag: bytes, made_s: int
    ) -> None:
        self.set_pieces(pieces)
        self.revision = revision.encode()
        self.number = number
        self.complete = complete
        self.etag = etag
        self.made_s = made_s
        self.zipping: asyncio.Future[bytes] | None = None

    def set_pieces(self, pieces: list[bytes]) -> None:
        """Say what the body is."""
        self.pieces = pieces
        self.size_bytes = sum(map(len, pieces))

    async def gzipped(self) -> bytes:
        """The body, compressed once, off the event loop."""
        if self.zipping is None:
            self.zipping = asyncio.ensure_future(asyncio.to_thread(_gzip, self.pieces))
        return await asyncio.shield(self.zipping)


def _separated(pages: list[bytes]) -> list[bytes]:
    return [page if index == 0 else b"," + page for index, page in enumerate(pages)]


def _gzip(pieces: list[bytes]) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*map(compressor.compress, pieces), compressor.flush()])


class Lists:
    """The latest answer for each selector."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._projection = instance.projection
        self._answers: OrderedDict[Selector, ListAnswer] = OrderedDict()

    def require_readable(self) -> None:
        """Raise `Unavailable` while a source of pools was never read: an unread source is not an empty list."""
        for source in self._projection.completeness().sources:
            if source.state is SourceState.UNKNOWN and source.kind in (SourceKind.TABLE, SourceKind.TOPOLOGY):
                why = source.detail or source.reason
                raise Unavailable(f"The {source.kind} {source.name} has not been read yet: {why}.")

    async def answer(self, query: ListQuery) -> ListAnswer:
        """The list as it is now. Raises `Unavailable` where it was never read."""
        self.require_readable()
        if query.lease or query.unlisted:
            return await self._special(query)
        now = self._projection.completeness()
        made = self._answers.get(query.selector)
        if made is not None and self._still_good(made, now):
            return made
        listing = await self._instance.views.listing(query.selector)
        answer = self._encode(listing, self._projection.completeness())
        self._answers[query.selector] = answer
        self._answers.move_to_end(query.selector)
        if len(self._answers) > ANSWERS_LIMIT:
            self._answers.popitem(last=False)
        return answer

    def _still_good(self, made: ListAnswer, now: Completeness) -> bool:
        if made.number != self._projection.history.number:
            return False
        return now.complete or made.made_s == self._instance.clock.monotonic_ms() // 1000

    def _frame(self, now: Completeness, extra: bytes) -> tuple[bytes, bytes]:
        """What stands before and after the pools."""
        tail = b'],"complete":%b,"revision":"%b","sources":%b%b}' % (
            b"true" if now.complete else b"false",
            self._projection.revision.encode(),
            msgspec.json.encode(now.sources),
            extra,
        )
        return b'{"pools":[', tail

    def _finish(self, pieces: list[bytes], now: Completeness, etag: bytes) -> ListAnswer:
        history = self._projection.history
        made_s = self._instance.clock.monotonic_ms() // 1000
        return ListAnswer(pieces, self._projection.revision, history.number, now.complete, etag, made_s)

    def _encode(self, listing: Listing, now: Completeness, extra: bytes = b"") -> ListAnswer:
        head, tail = self._frame(now, extra)
        pages = listing.pieces()
        if listing.body_bytes <= WHOLE_BYTES:
            pieces = [b"".join([head, b",".join(pages), tail])]
        else:
            pieces = [head, *_separated(pages), tail]
        return self._finish(pieces, now, etag_of(listing, now, extra))

    async def _special(self, query: ListQuery) -> ListAnswer:
        listing = await self._instance.views.listing(query.selector)
        now = self._projection.completeness()
        extra = b',"unlisted":[]' if query.unlisted else b""
        if not query.lease:
            return self._encode(listing, now, extra)
        head, tail = self._frame(now, extra)
        answer = self._finish([], now, b"")
        pools = list(listing)
        pages = []
        for start in range(0, len(pools), LEASES_A_TURN):
            pages.append(b",".join([self.with_lease(pool) for pool in pools[start : start + LEASES_A_TURN]]))
            await asyncio.sleep(0)
        answer.set_pieces([head, *_separated(pages), tail])
        return answer

    def with_lease(self, pool: Pool) -> bytes:
        """The pool with its lease under ``status``."""
        lease = self._projection.lease(pool.key)
        return pool.body_with_status(b'{"lease":%b}' % msgspec.json.encode(lease))


def etag_of(listing: Listing, now: Completeness, extra: bytes = b"") -> bytes:
    """A weak ETag: equal exactly where pools, ``complete`` and source states are."""
    content = [listing.digest.to_bytes(DIGEST_BITS // 8), repr(now.identity).encode(), b"%d" % now.complete, extra]
    return b'W/"%b"' % blake2b(b"\0".join(content), digest_size=16).hexdigest().encode()
