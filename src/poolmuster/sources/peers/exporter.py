"""Makes the lines that peers read, each when it is asked for, with other tasks run in between.

A change wakes the streams at once; the timer wakes them for renewals, of which many go together, and for pings. A slow
reader takes no memory here: it is a number in the replication log, and the log holds each pool once.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from poolmuster.replication.log import LogEntry
from poolmuster.replication.messages import Delta, Entry, Registered, Snapshot, SyncSummary
from poolmuster.sources.peers.codec import BYTES_A_LINE, REGISTERED_WORK, WORK_A_LINE, encode
from poolmuster.sources.peers.instrumentation import DELTA, OUT, SNAPSHOT
from poolmuster.sources.peers.node import Node

T = TypeVar("T")
E = TypeVar("E", bound=Entry)

PING_MS = 400
"""After so long without a line the next tick, one each quarter of a second, sends a ping: twice a second."""

ITEMS_A_LINE = 1_000
"""The limit of items that are examined for one line: most of them may have expired."""

NO_SUMMARY = SyncSummary(warmed_up=False, names_resolved=False)
"""Of a message that is not the one of several whose summary counts."""


class ReplicationSubscriber:
    """One stream to a peer: the number in the log up to which it was sent, and when."""

    def __init__(self, seq: int, now_ms: int) -> None:
        self.seq = seq
        self.sent_ms = now_ms
        self.wake = asyncio.Event()


class Exporter:
    """`poolmuster.ports.replication_feed.ReplicationFeed` of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._subscribers: set[ReplicationSubscriber] = set()
        node.on_change = self._wake_all

    def _wake_all(self) -> None:
        for subscriber in self._subscribers:
            subscriber.wake.set()

    def tick(self, now_ms: int) -> None:
        """Wake subscribers that lack a renewal or a ping. The store calls this four times a second."""
        for subscriber in self._subscribers:
            if subscriber.seq < self._node.replica.log.seq or now_ms - subscriber.sent_ms >= PING_MS:
                subscriber.wake.set()

    async def snapshot(self) -> AsyncGenerator[bytes, None]:
        replica = self._node.replica
        summary = self._node.membership.summary(self._node.notice_pause())
        pools, position, more = replica.items(), 0, True
        while more:
            now_ms = self._node.notice_pause()
            entries, position = _fill_line(pools, position, partial(replica.snapshot_entries, now_ms=now_ms))
            more = position < len(pools)
            message = Snapshot(
                boot_id=self._node.boot_id,
                uptime_ms=now_ms - self._node.started_ms,
                sent_ms=now_ms,
                more=more,
                summary=summary,
                entries=entries,
            )
            yield self._line(SNAPSHOT, message)
            summary = NO_SUMMARY
            await asyncio.sleep(0)

    async def delta(self, boot_id: str, after: int) -> AsyncGenerator[bytes, None]:
        async for line, _ in self._deltas(self._resume_at(boot_id, after)):
            yield line

    async def follow(self, boot_id: str, after: int) -> AsyncGenerator[bytes, None]:
        subscriber = ReplicationSubscriber(self._resume_at(boot_id, after), self._node.notice_pause())
        self._subscribers.add(subscriber)
        self._node.instrumentation.subscribers(len(self._subscribers))
        try:
            while True:
                subscriber.wake.clear()
                async for line, seq in self._deltas(subscriber.seq):
                    yield line
                    subscriber.seq = seq
                    subscriber.sent_ms = self._node.notice_pause()
                await subscriber.wake.wait()
        finally:
            self._subscribers.discard(subscriber)
            self._node.instrumentation.subscribers(len(self._subscribers))

    def _resume_at(self, boot_id: str, after: int) -> int:
        return after if boot_id == self._node.boot_id and after <= self._node.replica.log.seq else 0

    async def _deltas(self, after: int) -> AsyncGenerator[tuple[bytes, int], None]:
        """What is in the log after number ``after``, as of now, and the number that each line leads to."""
        log = self._node.replica.log
        items, end, sent_seq = log.after(after), log.seq, after
        position, more = 0, True
        while more:
            now_ms = self._node.notice_pause()
            entries, position = _fill_line(items, position, partial(_entries_of, after=after, now_ms=now_ms))
            more = position < len(items)
            seq = items[position - 1][0] if more else end
            message = Delta(
                boot_id=self._node.boot_id,
                uptime_ms=now_ms - self._node.started_ms,
                sent_ms=now_ms,
                after=sent_seq,
                seq=seq,
                more=more,
                summary=NO_SUMMARY if more else self._node.membership.summary(now_ms),
                entries=entries,
            )
            yield self._line(DELTA, message), seq
            sent_seq = seq
            await asyncio.sleep(0)

    def _line(self, kind: str, message: Delta | Snapshot) -> bytes:
        line = encode(message) + b"\n"
        self._node.instrumentation.message(OUT, kind, len(line))
        return line


def _entries_of(item: tuple[int, LogEntry], after: int, now_ms: int) -> Iterable[Entry]:
    entry = item[1].message(after, now_ms)
    return () if entry is None else (entry,)


def _fill_line(items: Sequence[T], position: int, entries_of: Callable[[T], Iterable[E]]) -> tuple[tuple[E, ...], int]:
    """The entries of one line, of the items from ``position`` on, and the position of the next line."""
    entries: list[E] = []
    work, size_bytes = 0, 0
    end = min(len(items), position + ITEMS_A_LINE)
    while position < end and work < WORK_A_LINE and size_bytes < BYTES_A_LINE:
        for entry in entries_of(items[position]):
            entries.append(entry)
            if isinstance(entry, Registered):
                work += REGISTERED_WORK
                size_bytes += len(bytes(entry.registration))
            else:
                work += 1
        position += 1
    return tuple(entries), position
