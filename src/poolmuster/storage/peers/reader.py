"""Reading one address: what comes is decoded in short pieces, merged, and told to the circle."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from poolmuster.core.claims import Claim, Leaving
from poolmuster.core.peer_feed import Misread, PeerFeed, whole_list_of
from poolmuster.core.peer_messages import Batch, Statement
from poolmuster.core.transit import Transit
from poolmuster.ports.clock import Clock
from poolmuster.storage.peers.ledger import Ledger
from poolmuster.storage.peers.network import FEED_PATH, LIST_PATH, STREAM_PATH, PeerNetwork
from poolmuster.storage.peers.notes import BATCH, IN, LIST, PeerNotes
from poolmuster.storage.peers.trouble import bad_answer
from poolmuster.storage.peers.wire import decode_batch, decode_whole, lines_of

ANSWER_LINES_LIMIT = 20_000
"""Of an answer that ends: far more than all pools of the largest instance take."""


class PeerPlace(msgspec.Struct, frozen=True):
    """An address, and the host that its certificate must be for."""

    address: str
    host: str


class Said(msgspec.Struct, frozen=True):
    """When the first message of several, that together say what was so at one moment, was said, and by whom."""

    boot_id: str
    said_ms: int
    sent_ms: int
    up_ms: int


class PeerReader:
    """Reads ``place``.

    ``heard_ms`` is when something of the present answer came last, ``stream_heard_ms`` the same of the present stream,
    ``whole_heard_ms`` of the present whole list.
    """

    def __init__(self, place: PeerPlace, ledger: Ledger, network: PeerNetwork, clock: Clock, notes: PeerNotes) -> None:
        self.place = place
        self._ledger = ledger
        self._network = network
        self._clock = clock
        self._notes = notes
        self._limit_bytes = ledger.terms.bytes_limit
        self._feed: PeerFeed | None = None
        self.heard_ms: int | None = None
        self.stream_heard_ms: int | None = None
        self.whole_heard_ms: int | None = None
        self.boot_id: str | None = None
        """Who was read last."""
        self.statement: tuple[Statement, int] | None = None
        """What the peer said last of how far its list can be trusted, and when."""

    @property
    def _after(self) -> tuple[str, int]:
        if self.boot_id == self._ledger.boot_id:
            return self.boot_id, self._ledger.merging.journal.seq
        return ("", 0) if self._feed is None else (self._feed.boot_id, self._feed.seq)

    async def stream(self) -> AsyncGenerator[bool, None]:
        """Read what happens there as it happens. Yields after each batch whether all there is was told.

        Raises `PeerTrouble`, `PeerRefused`, `Misread`.
        """
        transit = Transit()
        first: Said | None = None
        after = self._after
        async with self._network.ask(self.place, STREAM_PATH, after) as answer:
            async for line in lines_of(answer.pieces()):
                now_ms = self._ledger.wake()
                batch = self._decode(line)
                self.stream_heard_ms = now_ms
                said_ms = transit.said_ms(batch.sent_ms, now_ms)
                first = first or Said(batch.boot_id, said_ms, batch.sent_ms, batch.up_ms)
                self._take(batch, said_ms, first, now_ms, again=after[1] == 0)
                if not batch.more:
                    first, after = None, (batch.boot_id, batch.seq)
                yield not batch.more
                await asyncio.sleep(0)

    async def poll(self) -> None:
        """Ask once for what happened there. Raises `PeerTrouble`, `PeerRefused`, `Misread`."""
        asked_ms = self._ledger.wake()
        first: Said | None = None
        after = self._after
        async with self._network.ask(self.place, FEED_PATH, after) as answer:
            async for line in _bounded(lines_of(answer.pieces())):
                now_ms = self._ledger.wake()
                batch = self._decode(line)
                self.heard_ms = now_ms
                first = first or Said(batch.boot_id, asked_ms, batch.sent_ms, batch.up_ms)
                said_ms = min(now_ms, asked_ms + max(0, batch.sent_ms - first.sent_ms))
                self._take(batch, said_ms, first, now_ms, again=after[1] == 0)
                if not batch.more:
                    return
                await asyncio.sleep(0)
        raise bad_answer("Its answer ends too early.")

    def _decode(self, line: bytes) -> Batch:
        batch = decode_batch(line)
        self._notes.message(IN, BATCH, len(line))
        return batch

    def _take(self, batch: Batch, said_ms: int, first: Said, now_ms: int, *, again: bool) -> None:
        if batch.boot_id != first.boot_id:
            raise bad_answer("Two instances speak in one answer.")
        if batch.boot_id != self._ledger.boot_id:
            if self._feed is None or self._feed.boot_id != batch.boot_id:
                self._feed = PeerFeed(batch.boot_id)
            said = self._take_feed(self._feed, batch, said_ms)
            self._hear(said, now_ms)
            if not again:
                self._note_lag(said, now_ms)
        self.boot_id = batch.boot_id
        if not batch.more:
            self._ledger.circle.read(self.place.address, batch.boot_id, first.up_ms, first.said_ms)
            self._ledger.changed()
            self.statement = (batch.statement, said_ms)

    def _take_feed(self, feed: PeerFeed, batch: Batch, said_ms: int) -> list[Claim | Leaving]:
        skipped = feed.skipped
        try:
            said = feed.take(batch, said_ms)
        except Misread as misread:
            feed.seq = misread.seq
            raise
        if feed.skipped > skipped:
            self._notes.skipped(feed.skipped - skipped)
        if feed.size_bytes > self._limit_bytes:
            self._feed = None
            raise bad_answer(f"It says more than the {self._limit_bytes} bytes that are held of a peer.")
        return said

    def _hear(self, said: list[Claim | Leaving], now_ms: int) -> None:
        if left_out := self._ledger.hear(said, now_ms):
            self._notes.skipped(left_out)
            # Read from its beginning the next time too: what was left out is not to be taken for known.
            self._feed = None
            raise bad_answer("It has more pools than an instance may hold.")

    def _note_lag(self, said: list[Claim | Leaving], now_ms: int) -> None:
        for each in said:
            if isinstance(each, Claim):
                self._notes.renewal_came(max(0, now_ms - each.renewed_ms))

    async def whole(self) -> str:
        """Take all that the peer lists, whoever took it, and what follows from that for this list. Returns its boot.

        Raises `PeerTrouble`, `PeerRefused`.
        """
        asked_ms = self._ledger.wake()
        self.whole_heard_ms = None
        first: Said | None = None
        size_bytes = 0
        statement = Statement(warm=False, named=False)
        async with self._network.ask(self.place, LIST_PATH) as answer:
            async for line in _bounded(lines_of(answer.pieces())):
                now_ms = self._ledger.wake()
                whole = decode_whole(line)
                self._notes.message(IN, LIST, len(line))
                self.whole_heard_ms = now_ms
                if (size_bytes := size_bytes + len(line)) > self._limit_bytes:
                    raise bad_answer("Its list does not end.")
                if first is None:
                    first = Said(whole.boot_id, asked_ms, whole.sent_ms, whole.up_ms)
                    statement = whole.statement
                elif first.boot_id != whole.boot_id:
                    raise bad_answer("Two instances speak in one answer.")
                said_ms = min(now_ms, asked_ms + max(0, whole.sent_ms - first.sent_ms))
                said, skipped = whole_list_of(whole.entries, whole.boot_id, said_ms)
                if skipped:
                    self._notes.skipped(skipped)
                if whole.boot_id != self._ledger.boot_id:
                    self._hear(said, now_ms)
                if not whole.more:
                    self._ledger.circle.adopt(statement, first.said_ms, now_ms)
                    self._ledger.changed()
                    return whole.boot_id
                await asyncio.sleep(0)
        raise bad_answer("Its list ends too early.")

    async def identify(self) -> str | None:
        """Who is at the address now, by a connection of its own. Raises `PeerTrouble`, `PeerRefused`."""
        async with self._network.ask(self.place, FEED_PATH, head=True) as answer:
            return answer.boot_id


async def _bounded(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of an answer that is to end."""
    count = 0
    async for line in lines:
        count += 1
        if count > ANSWER_LINES_LIMIT:
            raise bad_answer("Its answer does not end.")
        yield line
