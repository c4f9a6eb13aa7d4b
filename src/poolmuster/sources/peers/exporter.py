"""What peers are told, line by line; each line is made when it is asked for, and others run in between.

Whoever follows is woken at once when something happened that is news, and by the timer for what is not: renewals of
many pools go together, and where there is nothing to say, the ping. A reader that is slow holds no memory here: it has
a number in the journal, and the journal holds each pool once.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Generic, TypeVar

from poolmuster.ports.clock import Clock
from poolmuster.replication.log import LogEntry
from poolmuster.replication.messages import Delta, Deregistered, Entry, Registered, Snapshot, SyncSummary
from poolmuster.replication.replica import ReplicatedPool
from poolmuster.sources.peers.codec import BYTES_A_LINE, REGISTERED_WORK, WORK_A_LINE, encode
from poolmuster.sources.peers.instrumentation import BATCH, LIST, OUT, PeerInstrumentation
from poolmuster.sources.peers.node import Node

E = TypeVar("E", bound=Entry)

PING_MS = 400
"""Silence on a stream that the timer, which ticks every quarter of a second, ends at its next tick: twice a second."""

ENTRIES_A_LINE = 1_000
"""How many places are looked at for one line: most of them may be over."""


class DeltaBuilder(Generic[E]):
    """The entries of one line, as long as it may be."""

    def __init__(self) -> None:
        self.entries: list[E] = []
        self._work = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._work >= WORK_A_LINE or self._bytes >= BYTES_A_LINE

    def add(self, entry: E) -> None:
        self.entries.append(entry)
        if isinstance(entry, Registered):
            self._work += REGISTERED_WORK
            self._bytes += len(bytes(entry.registration))
        else:
            self._work += 1


class ReplicationSubscriber:
    """One stream to a peer: how far it was told, and when last."""

    def __init__(self, seq: int, now_ms: int) -> None:
        self.seq = seq
        self.sent_ms = now_ms
        self.wake = asyncio.Event()


class Exporter:
    """`poolmuster.ports.replication_feed.ReplicationFeed` of the ledger."""

    def __init__(self, node: Node, clock: Clock, notes: PeerInstrumentation) -> None:
        self._node = node
        self._clock = clock
        self._notes = notes
        self._subscribers: set[ReplicationSubscriber] = set()
        node.on_change = self._wake_all

    def _wake_all(self) -> None:
        for follower in self._subscribers:
            follower.wake.set()

    def tick(self, now_ms: int) -> None:
        """Wake subscribers that lack a renewal, or got nothing for too long; the store calls it four times a second."""
        for follower in self._subscribers:
            if follower.seq < self._node.replica.log.seq or now_ms - follower.sent_ms >= PING_MS:
                follower.wake.set()

    async def snapshot(self) -> AsyncGenerator[bytes, None]:
        now_ms = self._node.notice_pause()
        statement = self._node.summary(now_ms)
        known = self._node.replica.items()
        position = 0
        while True:
            now_ms = self._clock.monotonic_ms()
            entries, position = self._next_pools(known, position, now_ms)
            more = position < len(known)
            yield self._line(
                LIST,
                Snapshot(
                    boot_id=self._node.boot_id,
                    uptime_ms=self._node.uptime_ms(now_ms),
                    sent_ms=now_ms,
                    more=more,
                    summary=statement,
                    entries=entries,
                ),
            )
            if not more:
                return
            statement = SyncSummary(warmed_up=False, names_resolved=False)
            await asyncio.sleep(0)

    def _next_pools(
        self, known: Sequence[ReplicatedPool], position: int, now_ms: int
    ) -> tuple[tuple[Registered | Deregistered, ...], int]:
        line: DeltaBuilder[Registered | Deregistered] = DeltaBuilder()
        looked_up_to = min(len(known), position + ENTRIES_A_LINE)
        while position < looked_up_to and not line.is_full:
            for entry in self._node.replica.snapshot_entries(known[position], now_ms):
                line.add(entry)
            position += 1
        return tuple(line.entries), position

    async def delta(self, boot_id: str, after: int) -> AsyncGenerator[bytes, None]:
        async for line, _ in self._deltas(self._resume_at(boot_id, after)):
            yield line

    async def follow(self, boot_id: str, after: int) -> AsyncGenerator[bytes, None]:
        follower = ReplicationSubscriber(self._resume_at(boot_id, after), self._node.notice_pause())
        self._subscribers.add(follower)
        self._notes.followers(len(self._subscribers))
        try:
            while True:
                follower.wake.clear()
                async for line, seq in self._deltas(follower.seq):
                    yield line
                    follower.seq = seq
                    follower.sent_ms = self._clock.monotonic_ms()
                await follower.wake.wait()
        finally:
            self._subscribers.discard(follower)
            self._notes.followers(len(self._subscribers))

    def _resume_at(self, boot_id: str, after: int) -> int:
        return after if boot_id == self._node.boot_id and after <= self._node.replica.log.seq else 0

    async def _deltas(self, after: int) -> AsyncGenerator[tuple[bytes, int], None]:
        """All that happened after number ``after`` until now, and the number that each line leads to."""
        self._node.notice_pause()
        replication_log = self._node.replica.log
        places, end = replication_log.after(after), replication_log.seq
        told, position = after, 0
        while True:
            now_ms = self._clock.monotonic_ms()
            entries, position = self._next_entries(places, position, after, now_ms)
            more = position < len(places)
            seq = places[position - 1][0] if more else end
            batch = Delta(
                boot_id=self._node.boot_id,
                uptime_ms=self._node.uptime_ms(now_ms),
                sent_ms=now_ms,
                after=told,
                seq=seq,
                more=more,
                summary=SyncSummary(warmed_up=False, names_resolved=False) if more else self._node.summary(now_ms),
                entries=entries,
            )
            yield self._line(BATCH, batch), seq
            if not more:
                return
            told = seq
            await asyncio.sleep(0)

    @staticmethod
    def _next_entries(
        places: Sequence[tuple[int, LogEntry]], position: int, after: int, now_ms: int
    ) -> tuple[tuple[Entry, ...], int]:
        line: DeltaBuilder[Entry] = DeltaBuilder()
        looked_up_to = min(len(places), position + ENTRIES_A_LINE)
        while position < looked_up_to and not line.is_full:
            if (entry := places[position][1].message(after, now_ms)) is not None:
                line.add(entry)
            position += 1
        return tuple(line.entries), position

    def _line(self, kind: str, message: Delta | Snapshot) -> bytes:
        line = encode(message) + b"\n"
        self._notes.message(OUT, kind, len(line))
        return line
