"""The replication log: what was registered with this instance, and deregistered here, in order.

It holds one entry for each pool and one for each tombstone, moved to the end by every new event. So what is after any
number is at most one entry each, and the log is never longer than what is live.
"""

from collections import OrderedDict
from itertools import islice

import msgspec

from poolmuster.model.key import PoolKey
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.messages import Entry, Renewed, entry_of

EVICT_BATCH = 1_000


class LogEntry(msgspec.Struct, gc=False):
    """The last event of a pool at ``seq``. ``number`` is the ``seq`` since which the registration is unchanged."""

    seq: int
    number: int
    item: Write | Tombstone

    def message(self, after: int, now_ms: int) -> Entry | None:
        """The event for a peer that knows all up to ``after``; ``None`` where it is over."""
        if self.is_over(now_ms):
            return None
        if isinstance(self.item, Write) and self.number <= after:
            return Renewed(number=self.number, remaining_ms=self.item.remaining_ms(now_ms))
        return entry_of(self.item, self.number, now_ms)

    def is_over(self, now_ms: int) -> bool:
        """Whether it no longer matters to any peer."""
        return self.item.remaining_ms(now_ms) <= 0


class ReplicationLog:
    """What peers read. ``seq`` is the number of the last event, ``last_change_seq`` of the last that is no renewal."""

    def __init__(self) -> None:
        self.seq = 0
        self.last_change_seq = 0
        self._evict_position = 0
        self._entries: OrderedDict[tuple[PoolKey, str | None, bool], LogEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def record_write(self, write: Write) -> None:
        """This instance accepted a registration."""
        self.seq += 1
        place = (write.key, None, True)
        entry = self._entries.get(place)
        if entry is not None and isinstance(entry.item, Write) and _is_renewal(entry.item, write):
            entry.seq, entry.item = self.seq, write
        else:
            self._entries[place] = LogEntry(self.seq, self.seq, write)
            self.last_change_seq = self.seq
        self._entries.move_to_end(place)

    def record_tombstone(self, tombstone: Tombstone) -> None:
        """This instance accepted a deregistration. `drop` removes the write that it ended."""
        self.seq += 1
        place = (tombstone.key, tombstone.relay_id, False)
        self._entries[place] = LogEntry(self.seq, self.seq, tombstone)
        self._entries.move_to_end(place)
        self.last_change_seq = self.seq

    def write_of(self, key: PoolKey) -> Write | None:
        """The last write of ``key`` that this instance accepted, until it is dropped or evicted."""
        entry = self._entries.get((key, None, True))
        return entry.item if entry is not None and isinstance(entry.item, Write) else None

    def drop(self, key: PoolKey) -> None:
        """Remove the write of ``key``: a tombstone supersedes it, so peers do not need it."""
        self._entries.pop((key, None, True), None)

    def after(self, seq: int) -> list[tuple[int, LogEntry]]:
        """The entries after ``seq``, each with its number at present, in order.

        For sending piece by piece: an entry that changes meanwhile gets another number and is sent again.
        """
        found: list[tuple[int, LogEntry]] = []
        for entry in reversed(self._entries.values()):
            if entry.seq <= seq:
                break
            found.append((entry.seq, entry))
        found.reverse()
        return found

    def evict(self, now_ms: int) -> None:
        """Drop entries that are over, out of the next `EVICT_BATCH`. A long-lived entry does not keep later ones."""
        window = list(islice(self._entries.items(), self._evict_position, self._evict_position + EVICT_BATCH))
        over = [place for place, entry in window if entry.is_over(now_ms)]
        for place in over:
            del self._entries[place]
        self._evict_position += len(window) - len(over)
        if self._evict_position >= len(self._entries):
            self._evict_position = 0


def _is_renewal(before: Write, write: Write) -> bool:
    return (
        before.registration.pool.body == write.registration.pool.body
        and before.relay_id == write.relay_id
        and before.lease_ms == write.lease_ms
        and before.readmitted == write.readmitted
    )
