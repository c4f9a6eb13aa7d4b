"""What peers are told, line by line; each line is made when it is asked for, and others run in between.

Whoever follows is woken at once when something happened that is news, and by the timer for what is not: renewals of
many pools go together, and where there is nothing to say, the ping. A reader that is slow holds no memory here: it has
a number in the journal, and the journal holds each pool once.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Generic, TypeVar

from poolmuster.core.journal import Place, entry_of
from poolmuster.core.merging import Known
from poolmuster.core.pauses import TICK_MS
from poolmuster.core.peer_messages import Batch, Entry, Left, Registered, Statement, WholeList
from poolmuster.ports.clock import Clock
from poolmuster.storage.peers.ledger import Ledger
from poolmuster.storage.peers.notes import BATCH, LIST, OUT, PeerNotes
from poolmuster.storage.peers.wire import BYTES_A_LINE, REGISTERED_WORK, WORK_A_LINE, encode

E = TypeVar("E", bound=Entry)

PING_MS = 400
"""Silence on a stream that the timer, which ticks every quarter of a second, ends at its next tick: twice a second."""

PLACES_A_LINE = 1_000
"""How many places are looked at for one line: most of them may be over."""


class Line(Generic[E]):
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


class Follower:
    """One stream to a peer: how far it was told, and when last."""

    def __init__(self, seq: int, now_ms: int) -> None:
        self.seq = seq
        self.sent_ms = now_ms
        self.wake = asyncio.Event()


class PeerSharing:
    """`poolmuster.ports.sharing.Sharing` of the ledger."""

    def __init__(self, ledger: Ledger, clock: Clock, notes: PeerNotes) -> None:
        self._ledger = ledger
        self._clock = clock
        self._notes = notes
        self._followers: set[Follower] = set()
        self._ticked_ms = 0
        ledger.on_news = self._wake_all

    def _wake_all(self) -> None:
        for follower in self._followers:
            follower.wake.set()

    def tick(self, now_ms: int) -> None:
        """Wake whoever has something to be told, or was told nothing for too long: four times a second at most.

        The store's timer goes off with the end of each lease, which is renewed more often than not.
        """
        if now_ms - self._ticked_ms < TICK_MS:
            return
        self._ticked_ms = now_ms
        for follower in self._followers:
            if follower.seq < self._ledger.merging.journal.seq or now_ms - follower.sent_ms >= PING_MS:
                follower.wake.set()

    async def whole(self) -> AsyncGenerator[bytes, None]:
        now_ms = self._ledger.wake()
        statement = self._ledger.statement(now_ms)
        known = self._ledger.merging.everything()
        position = 0
        while True:
            now_ms = self._clock.monotonic_ms()
            entries, position = self._some_known(known, position, now_ms)
            more = position < len(known)
            yield self._line(
                LIST,
                WholeList(
                    boot_id=self._ledger.boot_id,
                    up_ms=self._ledger.up_ms,
                    sent_ms=now_ms,
                    more=more,
                    statement=statement,
                    entries=entries,
                ),
            )
            if not more:
                return
            statement = Statement(warm=False, named=False)
            await asyncio.sleep(0)

    def _some_known(
        self, known: Sequence[Known], position: int, now_ms: int
    ) -> tuple[tuple[Registered | Left, ...], int]:
        line: Line[Registered | Left] = Line()
        looked_up_to = min(len(known), position + PLACES_A_LINE)
        while position < looked_up_to and not line.is_full:
            for entry in self._ledger.merging.told(known[position], now_ms):
                line.add(entry)
            position += 1
        return tuple(line.entries), position

    async def batch(self, boot_id: str, after: int) -> AsyncGenerator[bytes, None]:
        async for line, _ in self._batches(self._place_of(boot_id, after)):
            yield line

    async def follow(self, boot_id: str, after: int) -> AsyncGenerator[bytes, None]:
        follower = Follower(self._place_of(boot_id, after), self._ledger.wake())
        self._followers.add(follower)
        self._notes.followers(len(self._followers))
        try:
            while True:
                follower.wake.clear()
                async for line, seq in self._batches(follower.seq):
                    yield line
                    follower.seq = seq
                    follower.sent_ms = self._clock.monotonic_ms()
                await follower.wake.wait()
        finally:
            self._followers.discard(follower)
            self._notes.followers(len(self._followers))

    def _place_of(self, boot_id: str, after: int) -> int:
        return after if boot_id == self._ledger.boot_id and after <= self._ledger.merging.journal.seq else 0

    async def _batches(self, after: int) -> AsyncGenerator[tuple[bytes, int], None]:
        """All that happened after number ``after`` until now, and the number that each line leads to."""
        self._ledger.wake()
        journal = self._ledger.merging.journal
        places, end = journal.after(after), journal.seq
        told, position = after, 0
        while True:
            now_ms = self._clock.monotonic_ms()
            entries, position = self._some_places(places, position, after, now_ms)
            more = position < len(places)
            seq = places[position - 1][0] if more else end
            batch = Batch(
                boot_id=self._ledger.boot_id,
                up_ms=self._ledger.up_ms,
                sent_ms=now_ms,
                after=told,
                seq=seq,
                more=more,
                statement=Statement(warm=False, named=False) if more else self._ledger.statement(now_ms),
                entries=entries,
            )
            yield self._line(BATCH, batch), seq
            if not more:
                return
            told = seq
            await asyncio.sleep(0)

    @staticmethod
    def _some_places(
        places: Sequence[tuple[int, Place]], position: int, after: int, now_ms: int
    ) -> tuple[tuple[Entry, ...], int]:
        line: Line[Entry] = Line()
        looked_up_to = min(len(places), position + PLACES_A_LINE)
        while position < looked_up_to and not line.is_full:
            if (entry := entry_of(places[position][1], after, now_ms)) is not None:
                line.add(entry)
            position += 1
        return tuple(line.entries), position

    def _line(self, kind: str, message: Batch | WholeList) -> bytes:
        line = encode(message) + b"\n"
        self._notes.message(OUT, kind, len(line))
        return line
