"""Reading one address: what comes is decoded in short pieces, merged, and told to the circle."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from poolmuster.ports.clock import Clock
from poolmuster.replication.decoder import DelayEstimator, DeltaDecoder, OutOfSync, decode_snapshot
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.messages import Delta, SyncSummary
from poolmuster.sources.peers.codec import decode_delta, decode_snapshot_line, lines_of
from poolmuster.sources.peers.errors import bad_answer
from poolmuster.sources.peers.instrumentation import BATCH, IN, LIST, PeerInstrumentation
from poolmuster.sources.peers.node import Node
from poolmuster.sources.peers.transport import FEED_PATH, LIST_PATH, STREAM_PATH, PeerTransport

ANSWER_LINES_LIMIT = 20_000
"""Of an answer that ends: far more than all pools of the largest instance take."""


class PeerAddress(msgspec.Struct, frozen=True):
    """An address, and the host that its certificate must be for."""

    address: str
    host: str


class MessageHeader(msgspec.Struct, frozen=True):
    """When the first message of several, that together say what was so at one moment, was said, and by whom."""

    boot_id: str
    local_ms: int
    sent_ms: int
    uptime_ms: int


class PeerReader:
    """Reads ``place``.

    ``heard_ms`` is when something of the present answer came last, ``stream_heard_ms`` the same of the present stream,
    ``whole_heard_ms`` of the present whole list.
    """

    def __init__(
        self, place: PeerAddress, node: Node, network: PeerTransport, clock: Clock, notes: PeerInstrumentation
    ) -> None:
        self.place = place
        self._node = node
        self._network = network
        self._clock = clock
        self._notes = notes
        self._limit_bytes = node.settings.bytes_limit
        self._feed: DeltaDecoder | None = None
        self.received_ms: int | None = None
        self.stream_received_ms: int | None = None
        self.snapshot_received_ms: int | None = None
        self.boot_id: str | None = None
        """Who was read last."""
        self.summary: tuple[SyncSummary, int] | None = None
        """What the peer said last of how far its list can be trusted, and when."""

    @property
    def _after(self) -> tuple[str, int]:
        if self.boot_id == self._node.boot_id:
            return self.boot_id, self._node.replica.log.seq
        return ("", 0) if self._feed is None else (self._feed.boot_id, self._feed.seq)

    async def stream(self) -> AsyncGenerator[bool, None]:
        """Read what happens there as it happens. Yields after each batch whether all there is was told.

        Raises `PeerTrouble`, `PeerRefused`, `OutOfSync`.
        """
        transit = DelayEstimator()
        first: MessageHeader | None = None
        after = self._after
        async with self._network.request(self.place, STREAM_PATH, after) as answer:
            async for line in lines_of(answer.pieces()):
                now_ms = self._node.notice_pause()
                batch = self._decode(line)
                self.stream_received_ms = now_ms
                said_ms = transit.to_local_ms(batch.sent_ms, now_ms)
                first = first or MessageHeader(batch.boot_id, said_ms, batch.sent_ms, batch.uptime_ms)
                await self._take(batch, said_ms, first, now_ms, again=after[1] == 0)
                if not batch.more:
                    first, after = None, (batch.boot_id, batch.seq)
                yield not batch.more
                await asyncio.sleep(0)

    async def poll(self) -> None:
        """Ask once for what happened there. Raises `PeerTrouble`, `PeerRefused`, `OutOfSync`."""
        asked_ms = self._node.notice_pause()
        first: MessageHeader | None = None
        after = self._after
        async with self._network.request(self.place, FEED_PATH, after) as answer:
            async for line in _bounded(lines_of(answer.pieces())):
                now_ms = self._node.notice_pause()
                batch = self._decode(line)
                self.received_ms = now_ms
                first = first or MessageHeader(batch.boot_id, asked_ms, batch.sent_ms, batch.uptime_ms)
                said_ms = min(now_ms, asked_ms + max(0, batch.sent_ms - first.sent_ms))
                await self._take(batch, said_ms, first, now_ms, again=after[1] == 0)
                if not batch.more:
                    return
                await asyncio.sleep(0)
        raise bad_answer("Its answer ends too early.")

    def _decode(self, line: bytes) -> Delta:
        batch = decode_delta(line)
        self._notes.message(IN, BATCH, len(line))
        return batch

    async def _take(self, batch: Delta, said_ms: int, first: MessageHeader, now_ms: int, *, again: bool) -> None:
        if batch.boot_id != first.boot_id:
            raise bad_answer("Two instances speak in one answer.")
        if batch.boot_id != self._node.boot_id:
            if self._feed is None or self._feed.boot_id != batch.boot_id:
                self._feed = DeltaDecoder(batch.boot_id)
            said = self._take_feed(self._feed, batch, said_ms)
            await self._apply(said, now_ms)
            if not again:
                self._note_lag(said, now_ms)
        self.boot_id = batch.boot_id
        if not batch.more:
            self._node.membership.read(self.place.address, batch.boot_id, first.uptime_ms, first.local_ms)
            self._node.changed()
            self.summary = (batch.summary, said_ms)

    def _take_feed(self, feed: DeltaDecoder, batch: Delta, said_ms: int) -> list[Write | Tombstone]:
        skipped = feed.skipped
        try:
            said = feed.decode(batch, said_ms)
        except OutOfSync as misread:
            feed.seq = misread.seq
            raise
        if feed.skipped > skipped:
            self._notes.skipped(feed.skipped - skipped)
        if feed.size_bytes > self._limit_bytes:
            self._feed = None
            raise bad_answer(f"It says more than the {self._limit_bytes} bytes that are held of a peer.")
        return said

    async def _apply(self, said: list[Write | Tombstone], now_ms: int) -> None:
        if left_out := await self._node.apply_remote(said, now_ms):
            self._notes.skipped(left_out)
            # Read from its beginning the next time too: what was left out is not to be taken for known.
            self._feed = None
            raise bad_answer("It has more pools than an instance may hold.")

    def _note_lag(self, said: list[Write | Tombstone], now_ms: int) -> None:
        for each in said:
            if isinstance(each, Write):
                self._notes.renewal_came(max(0, now_ms - each.renewed_ms))

    async def full_sync(self) -> str:
        """Take all that the peer lists, whoever took it, and what follows from that for this list. Returns its boot.

        Raises `PeerTrouble`, `PeerRefused`.
        """
        asked_ms = self._node.notice_pause()
        self.snapshot_received_ms = None
        first: MessageHeader | None = None
        size_bytes = 0
        statement = SyncSummary(warmed_up=False, names_resolved=False)
        async with self._network.request(self.place, LIST_PATH) as answer:
            async for line in _bounded(lines_of(answer.pieces())):
                now_ms = self._node.notice_pause()
                whole = decode_snapshot_line(line)
                self._notes.message(IN, LIST, len(line))
                self.snapshot_received_ms = now_ms
                if (size_bytes := size_bytes + len(line)) > self._limit_bytes:
                    raise bad_answer("Its list does not end.")
                if first is None:
                    first = MessageHeader(whole.boot_id, asked_ms, whole.sent_ms, whole.uptime_ms)
                    statement = whole.summary
                elif first.boot_id != whole.boot_id:
                    raise bad_answer("Two instances speak in one answer.")
                said_ms = min(now_ms, asked_ms + max(0, whole.sent_ms - first.sent_ms))
                said, skipped = decode_snapshot(whole.entries, whole.boot_id, said_ms)
                if skipped:
                    self._notes.skipped(skipped)
                if whole.boot_id != self._node.boot_id:
                    await self._apply(said, now_ms)
                if not whole.more:
                    self._node.membership.apply_summary(statement, first.local_ms, now_ms)
                    self._node.changed()
                    return whole.boot_id
                await asyncio.sleep(0)
        raise bad_answer("Its list ends too early.")

    async def identify(self) -> str | None:
        """Who is at the address now, by a connection of its own. Raises `PeerTrouble`, `PeerRefused`."""
        async with self._network.request(self.place, FEED_PATH, head=True) as answer:
            return answer.boot_id


async def _bounded(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of an answer that is to end."""
    count = 0
    async for line in lines:
        count += 1
        if count > ANSWER_LINES_LIMIT:
            raise bad_answer("Its answer does not end.")
        yield line
