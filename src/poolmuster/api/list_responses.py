"""Responses to ``GET /pools``: encoded on the first request after a change and kept until the next.

An ETag covers the pools, ``complete`` and the states of the sources, but not the revision, so that it is equal on all
instances and boots with the same content.
"""

import asyncio
import weakref
import zlib
from collections import OrderedDict
from hashlib import blake2b

import msgspec

from poolmuster.api.encoders import EncodedList, Piece, PoolEncoder, pool_with_lease
from poolmuster.api.request import ListQuery
from poolmuster.model.registration import DIGEST_BITS, Pool
from poolmuster.model.selector import Selector
from poolmuster.registry.record_list import RecordList
from poolmuster.service.completeness import Completeness
from poolmuster.service.instance import Instance

RESPONSES_LIMIT = 64
GZIP_FROM_BYTES = 1024
GZIP_LEVEL = 1
GZIPPED_LIMIT = 8
"""Compressed lists in memory at once, those that slow clients still read included; beyond it none is compressed."""


class ListResponse(msgspec.Struct, kw_only=True, eq=False, weakref=True):
    """One list at one moment. ``number`` is that of its latest change, ``made_s`` the second of its encoding."""

    json: EncodedList
    number: int
    revision: bytes
    complete: bool
    etag: bytes
    made_s: int
    zipping: asyncio.Future[bytes] | None = None


class ListCache:
    """The latest response for each selector."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._catalog = instance.catalog
        self._responses: OrderedDict[Selector, ListResponse] = OrderedDict()
        self._gzipped: weakref.WeakSet[ListResponse] = weakref.WeakSet()

    def require_readable(self) -> Completeness:
        """The list's completeness. Raises `Unavailable` while a source of pools was never read."""
        now = self._catalog.completeness()
        now.require_readable()
        return now

    async def answer(self, query: ListQuery) -> ListResponse:
        """The list as it is now, without leases. Raises `Unavailable` where a source was never read."""
        now = self.require_readable()
        # People ask for leases and unlisted pools, and the content differs each time: not worth caching.
        cached = not (query.lease or query.unlisted)
        response = self._responses.get(query.selector) if cached else None
        if response is None or not self._is_current(response, now):
            response = self._make(await self._instance.views.pools(query.selector), query)
            if not cached:
                return response
            self._responses[query.selector] = response
        self._responses.move_to_end(query.selector)
        if len(self._responses) > RESPONSES_LIMIT:
            self._responses.popitem(last=False)
        return response

    def _is_current(self, response: ListResponse, now: Completeness) -> bool:
        # Completeness is doubtful for a moment where the timer is late, which is no change.
        if response.number != self._catalog.change_log.number or response.complete != now.complete:
            return False
        return now.complete or response.made_s == self._instance.clock.monotonic_ms() // 1000

    def _make(self, pools: RecordList[Pool], query: ListQuery) -> ListResponse:
        now = self._catalog.completeness()
        revision = self._catalog.revision
        return ListResponse(
            json=EncodedList(pools.pages(), revision, now, unlisted=query.unlisted),
            number=self._catalog.change_log.number,
            revision=revision.encode(),
            complete=now.complete,
            etag=b"" if query.lease else _etag(pools, now, query),
            made_s=self._instance.clock.monotonic_ms() // 1000,
        )

    async def gzipped(self, response: ListResponse) -> bytes | None:
        """The JSON, compressed once and off the event loop; ``None`` where that would take too much memory."""
        if response.zipping is None:
            if len(self._gzipped) >= GZIPPED_LIMIT:
                return None
            self._gzipped.add(response)
            response.zipping = asyncio.ensure_future(asyncio.to_thread(_gzip, response.json.whole()))
        return await asyncio.shield(response.zipping)

    def pool_encoder(self, query: ListQuery) -> PoolEncoder | None:
        """Encodes the pools of ``query``; ``None`` where they are sent in their canonical form."""
        return self._with_lease if query.lease else None

    def _with_lease(self, pool: Pool) -> bytes:
        return pool_with_lease(pool, self._catalog.lease(pool.key))


def _gzip(pieces: list[Piece]) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*map(compressor.compress, pieces), compressor.flush()])


def _etag(pools: RecordList[Pool], now: Completeness, query: ListQuery) -> bytes:
    """A weak ETag: equal exactly where pools, ``complete`` and source states are."""
    state = repr((now.state_key, now.complete, query.unlisted)).encode()
    content = pools.digest.to_bytes(DIGEST_BITS // 8) + state
    return b'W/"%b"' % blake2b(content, digest_size=16).hexdigest().encode()
