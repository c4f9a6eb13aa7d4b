"""Channels: all watchers that ask the same question in the same format, and what they are sent.

An event is translated and encoded once for a channel, not once for a watcher. A watcher's place is a number in the
history; from one place the same bytes lead on for everybody.
"""

from collections.abc import AsyncIterator

import msgspec

from poolmuster.api.list_responses import ListCache, ListResponse
from poolmuster.api.query import ListQuery
from poolmuster.model.change import ChangeKind, PoolChange
from poolmuster.model.key import PoolKey
from poolmuster.model.source import SourceInfo, is_complete
from poolmuster.registry.filtering import filter_change
from poolmuster.service.broadcaster import Subscriber
from poolmuster.service.instance import Instance

CHUNK_CHANGES = 256
CHUNK_BYTES = 256 * 1024
CHUNK_CACHE_SIZE = 64


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Bytes that lead from one place to ``number``. They may be empty, where nothing on the way is to be seen."""

    data: bytes
    number: int


class WatchGroup:
    """One question in one format (``sse``, or a JSON object a line).

    ``looked`` is the number up to which it has looked at the history; its watchers wait there for the publisher.
    """

    def __init__(self, instance: Instance, lists: ListCache, query: ListQuery, *, sse: bool) -> None:
        self._lists = lists
        self._catalog = instance.catalog
        self._history = instance.catalog.change_log
        self._memo: dict[int, Chunk] = {}
        self._visible: list[PoolChange] = []
        self._shown_from = self._history.number
        self._news = False
        self._boot_id = instance.catalog.boot_id.encode()
        # Computed once: it is a part of every event's id.
        self._digest = query.digest
        self.looked = self._history.number
        self.query = query
        self.sse = sse
        self.members: set[Subscriber] = set()

    def subscribers(self) -> set[Subscriber]:
        """Its watchers (`poolmuster.service.broadcaster.SubscriberGroup`)."""
        return self.members

    def poll(self) -> bool:
        """Whether the changes since the last call show its watchers anything."""
        self._memo.clear()
        self.advance()
        news, self._news = self._news, False
        return news

    def advance(self) -> None:
        """Look through the filter at the changes that are new.

        Afterwards ``_shown`` is all that is to be seen between ``_shown_from`` and ``looked``. So each change is held
        against a filter once, not once for each watcher and once more for the publisher; and a watcher that was not
        woken for what its filter hides is not late, even when that is forgotten.
        """
        changes = self._history.since(self.looked)
        if changes is None:
            self._shown_from, self._visible, self._news = self._history.number, [], True
        else:
            selector = self.query.selector
            shown = [seen for change in changes if (seen := filter_change(change, selector)) is not None]
            if shown:
                self._shown_from = self._visible[-1].number if self._visible else self._shown_from
                self._visible, self._news = shown, True
        self.looked = self._history.number

    def event_id(self, number: int) -> str:
        """``BOOT.N.F``: where a stream can be taken up again."""
        return f"{self._catalog.boot_id}.{number}.{self._digest}"

    def resume_number(self, last_event_id: str) -> int | None:
        """The place that ``Last-Event-ID`` names, if this boot still holds the history from it under this question."""
        boot_and_number, _, digest = last_event_id.strip().rpartition(".")
        boot, _, text = boot_and_number.rpartition(".")
        if boot != self._catalog.boot_id or digest != self._digest or not (text.isascii() and text.isdigit()):
            return None
        number = int(text) if len(text) < 20 else -1
        return number if self._history.first_resumable <= number <= self._history.number else None

    def next_chunk(self, number: int) -> Chunk | None:
        """What a watcher at ``number`` is sent next; ``None`` where the history no longer reaches back to it.

        Chunks are remembered until the next round of the publisher: all watchers that it wakes go the same steps,
        also while the history grows.
        """
        chunk = self._memo.get(number)
        if chunk is None:
            chunk = self._make_chunk(number)
            if chunk is not None and chunk.number != number:
                if len(self._memo) >= CHUNK_CACHE_SIZE:
                    self._memo.clear()
                self._memo[number] = chunk
        return chunk

    def _make_chunk(self, number: int) -> Chunk | None:
        if number >= self._shown_from:
            return self._encode(
                [change for change in self._visible if change.number > number], max(number, self.looked)
            )
        changes = self._history.since(number, CHUNK_CHANGES)
        if changes is None:
            return None
        selector = self.query.selector
        seen = [filter_change(change, selector) for change in changes]
        return self._encode([change for change in seen if change is not None], changes[-1].number)

    def _encode(self, changes: list[PoolChange], number: int) -> Chunk:
        """As many of ``changes`` as a chunk may hold; where that is all of them, it leads to ``number``."""
        events: list[bytes] = []
        size_bytes = 0
        for index, change in enumerate(changes, 1):
            events.append(self.encode_change(change))
            size_bytes += len(events[-1])
            if (size_bytes >= CHUNK_BYTES or index == CHUNK_CHANGES) and index < len(changes):
                return Chunk(b"".join(events), change.number)
        return Chunk(b"".join(events), number)

    def _open(self, kind: str, number: int) -> bytes:
        revision = b',"revision":"%b.%d"' % (self._boot_id, number)
        return self._start(kind, number) + revision

    def _start(self, kind: str, number: int) -> bytes:
        event_id = self.event_id(number).encode()
        start = b'{"type":"%b","id":"%b"' % (kind.encode(), event_id)
        return b"id: %b\ndata: %b" % (event_id, start) if self.sse else start

    @property
    def _close(self) -> bytes:
        return b"}\n\n" if self.sse else b"}\n"

    def encode_change(self, change: PoolChange) -> bytes:
        """One change as an event."""
        match change.kind:
            case ChangeKind.COMPLETENESS:
                return self.completeness(change.number, change.sources)
            case ChangeKind.REMOVED:
                assert change.before is not None, "a removal is of something"
                assert change.removal is not None, "a removal has a cause"
                what = b',"key":%b,"cause":%b,"reason":%b,"detail":%b' % (
                    encode_key(change.before.key),
                    msgspec.json.encode(change.removal.cause),
                    msgspec.json.encode(change.removal.reason),
                    msgspec.json.encode(change.removal.detail),
                )
            case _:
                assert change.after is not None, "what was added or changed is there"
                pool = self._lists.with_lease(change.after) if self.query.lease else change.after.body
                what = b',"pool":' + pool
        return b"%b%b%b" % (self._open(change.kind, change.number), what, self._close)

    def completeness(self, number: int, sources: tuple[SourceInfo, ...]) -> bytes:
        """A ``completeness`` event at ``number``."""
        complete = b"true" if is_complete(sources) else b"false"
        content = b',"complete":%b,"sources":%b' % (complete, msgspec.json.encode(sources))
        return self._open(ChangeKind.COMPLETENESS, number) + content + self._close

    def ping(self, number: int) -> bytes:
        """A keep-alive."""
        return b": ping\n\n" if self.sse else self._open("ping", number) + self._close

    def closing(self, number: int, reason: str) -> bytes:
        """The last event of a stream."""
        return self._open("closing", number) + b',"reason":"%b"' % reason.encode() + self._close

    async def snapshot(self) -> tuple[AsyncIterator[bytes | memoryview], int]:
        """A ``snapshot`` event in pieces, and the place it leads to. Raises `Unavailable`."""
        answer = await self._lists.answer(self.query)
        return self._snapshot_pieces(answer), answer.number

    async def _snapshot_pieces(self, answer: ListResponse) -> AsyncIterator[bytes | memoryview]:
        body = self._lists.stream_with_leases(answer) if self.query.lease else answer.stream()
        first = True
        async for piece in body:
            yield self._start("snapshot", answer.number) + b"," + bytes(piece).removeprefix(b"{") if first else piece
            first = False
        yield self._close[1:]


def encode_key(key: PoolKey) -> bytes:
    """A key as a JSON object."""
    return msgspec.json.encode(key)
