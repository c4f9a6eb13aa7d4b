"""Groups of watchers with the same query and format: a change is filtered and encoded once for all of them.

A watcher's place is a number in the change log. The bytes that lead on from one place are the same for every watcher
of the group.
"""

from collections.abc import AsyncIterator

import msgspec

from poolmuster.api.encoders import EventEncoder, Piece
from poolmuster.api.list_responses import ListCache
from poolmuster.api.request import ListQuery
from poolmuster.model.change import PoolChange
from poolmuster.registry.filtering import filter_change
from poolmuster.service.broadcaster import Subscriber
from poolmuster.service.instance import Instance

CHUNK_CHANGES = 256
CHUNK_BYTES = 256 * 1024
CHUNK_CACHE_SIZE = 64


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Bytes that lead from one place to ``number``. They are empty where the filter hides every change between."""

    data: bytes
    number: int


class WatchGroup:
    """The watchers of one query in one format (``sse``, or a JSON object a line).

    ``seen`` is the number up to which the group has read the change log; its watchers wait there for the publisher.
    """

    def __init__(self, instance: Instance, lists: ListCache, query: ListQuery, *, sse: bool) -> None:
        self._lists = lists
        self._change_log = instance.catalog.change_log
        self._selector = None if query.selector.selects_all else query.selector
        self._chunks: dict[int, Chunk] = {}
        self._visible: list[PoolChange] = []
        self._visible_from = self._change_log.number
        self._news = False
        self.seen = self._change_log.number
        self.query = query
        self.sse = sse
        self.encoder = EventEncoder(
            boot_id=instance.catalog.boot_id, digest=query.digest, sse=sse, encode_pool=lists.pool_encoder(query)
        )
        self.members: set[Subscriber] = set()

    def subscribers(self) -> set[Subscriber]:
        """Its watchers (`poolmuster.service.broadcaster.SubscriberGroup`)."""
        return self.members

    def poll(self) -> bool:
        """Whether a change since the last call is visible to its watchers."""
        self._chunks.clear()
        self.advance()
        news, self._news = self._news, False
        return news

    def advance(self) -> None:
        """Filter the new changes.

        Afterwards ``_visible`` holds every visible change between ``_visible_from`` and ``seen``. So the group filters
        each change once, and a watcher that was not woken for hidden changes can go on even when the change log has
        dropped them.
        """
        changes = self._change_log.since(self.seen)
        if changes is None:
            self._visible_from, self._visible, self._news = self._change_log.number, [], True
        elif visible := self._filtered(changes):
            self._visible_from = self._visible[-1].number if self._visible else self._visible_from
            self._visible, self._news = visible, True
        self.seen = self._change_log.number

    def _filtered(self, changes: list[PoolChange]) -> list[PoolChange]:
        if (selector := self._selector) is None:
            return changes
        return [seen for change in changes if (seen := filter_change(change, selector)) is not None]

    def resume_number(self, last_event_id: str) -> int | None:
        """The place that ``Last-Event-ID`` names, if the change log still reaches back to it."""
        number = self.encoder.number_of(last_event_id)
        if number is None or not self._change_log.first_resumable <= number <= self._change_log.number:
            return None
        return number

    def next_chunk(self, number: int) -> Chunk | None:
        """The next bytes for a watcher at ``number``; ``None`` where the change log no longer reaches back to it.

        Chunks are cached until the publisher's next round: all watchers that it wakes go through the same places, also
        while the change log grows.
        """
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._make_chunk(number)
            if chunk is not None and chunk.number != number:
                if len(self._chunks) >= CHUNK_CACHE_SIZE:
                    self._chunks.clear()
                self._chunks[number] = chunk
        return chunk

    def _make_chunk(self, number: int) -> Chunk | None:
        if number >= self._visible_from:
            return self._encode([change for change in self._visible if change.number > number], max(number, self.seen))
        changes = self._change_log.since(number, CHUNK_CHANGES)
        return None if changes is None else self._encode(self._filtered(changes), changes[-1].number)

    def _encode(self, changes: list[PoolChange], number: int) -> Chunk:
        """As many of ``changes`` as fit into a chunk; where all of them fit, it leads to ``number``."""
        events: list[bytes] = []
        size_bytes = 0
        for index, change in enumerate(changes, 1):
            events.append(self.encoder.change(change))
            size_bytes += len(events[-1])
            if (size_bytes >= CHUNK_BYTES or index == CHUNK_CHANGES) and index < len(changes):
                return Chunk(b"".join(events), change.number)
        return Chunk(b"".join(events), number)

    async def snapshot(self) -> tuple[AsyncIterator[Piece], int]:
        """A ``snapshot`` event in pieces, and the place it leads to. Raises `Unavailable`."""
        response = await self._lists.answer(self.query)
        pieces = response.json.pieces(self._lists.pool_encoder(self.query))
        return self.encoder.snapshot(response.number, pieces), response.number
