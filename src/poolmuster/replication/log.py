"""The journal: what was registered with this instance, and deregistered here, in the order of its happening.

It holds one place for each pool and one for each leaving, moved to the end when something happens to it. So what
happened after any number is at most one entry each, and the journal is never longer than what is live.
"""

from collections import OrderedDict
from itertools import islice

import msgspec

from poolmuster.model.key import PoolKey
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.messages import Deregistered, Entry, Registered, Renewed

EVICT_BATCH = 1_000


class LogEntry(msgspec.Struct, gc=False):
    """One thing in the journal. ``number`` is the ``seq`` at which a claim got the facts it has."""

    seq: int
    number: int
    item: Write | Tombstone


class ReplicationLog:
    """What peers are told. ``seq`` is the number of what happened last, ``news_seq`` of what was not a mere renewal."""

    def __init__(self) -> None:
        self.seq = 0
        self.last_change_seq = 0
        self._evict_position = 0
        self._entries: OrderedDict[tuple[PoolKey, str | None, bool], LogEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def record_write(self, write: Write) -> None:
        """This instance took a registration."""
        self.seq += 1
        at = (write.registration.key, None, True)
        place = self._entries.get(at)
        if place is not None and isinstance(place.item, Write) and _same(place.item, write):
            place.seq, place.item = self.seq, write
        else:
            self._entries[at] = LogEntry(self.seq, self.seq, write)
            self.last_change_seq = self.seq
        self._entries.move_to_end(at)

    def record_tombstone(self, tombstone: Tombstone) -> None:
        """This instance took a deregistration; the claim that it ended is dropped by `drop`."""
        self.seq += 1
        at = (tombstone.deregistration.key, tombstone.deregistration.relay_id, False)
        self._entries[at] = LogEntry(self.seq, self.seq, tombstone)
        self._entries.move_to_end(at)
        self.last_change_seq = self.seq

    def write_of(self, key: PoolKey) -> Write | None:
        """What was last registered with this instance of ``key``, while its lease runs."""
        place = self._entries.get((key, None, True))
        return place.item if place is not None and isinstance(place.item, Write) else None

    def drop(self, key: PoolKey) -> None:
        """The claim of ``key`` was beaten: nobody need hear of it any more."""
        self._entries.pop((key, None, True), None)

    def since(self, seq: int, now_ms: int) -> tuple[Entry, ...]:
        """What happened after ``seq`` and still matters, in order."""
        entries = (message_of(place, seq, now_ms) for _, place in self.after(seq))
        return tuple(entry for entry in entries if entry is not None)

    def after(self, seq: int) -> list[tuple[int, LogEntry]]:
        """The places of what happened after ``seq``, each under its number now, in order.

        To be told piece by piece: what happens to a place meanwhile has another number, and is told again.
        """
        found: list[tuple[int, LogEntry]] = []
        for place in reversed(self._entries.values()):
            if place.seq <= seq:
                break
            found.append((place.seq, place))
        found.reverse()
        return found

    def evict(self, now_ms: int) -> None:
        """Drop what is over, so many places a turn: what is kept for long must not keep all that came after it."""
        window = list(islice(self._entries.items(), self._evict_position, self._evict_position + EVICT_BATCH))
        over = [at for at, place in window if _is_over(place, now_ms)]
        for at in over:
            del self._entries[at]
        self._evict_position += len(window) - len(over)
        if self._evict_position >= len(self._entries):
            self._evict_position = 0


def _is_over(place: LogEntry, now_ms: int) -> bool:
    if isinstance(place.item, Tombstone):
        return place.item.kept_until_ms <= now_ms
    return remaining(place.item, now_ms) <= 0


def message_of(place: LogEntry, seq: int, now_ms: int) -> Entry | None:
    """What is said of ``place`` to whoever knows all up to ``seq``; ``None`` where it is over."""
    if isinstance(place.item, Tombstone):
        return left_message(place.item, now_ms) if place.item.kept_until_ms > now_ms else None
    if (remaining_ms := remaining(place.item, now_ms)) <= 0:
        return None
    if place.number <= seq:
        return Renewed(number=place.number, remaining_ms=remaining_ms)
    return registered_message(place.item, place.number, now_ms)


def _same(one: Write, other: Write) -> bool:
    return (
        one.registration.pool.body == other.registration.pool.body
        and one.relay_id == other.relay_id
        and one.lease_ms == other.lease_ms
        and one.readmitted == other.readmitted
    )


def remaining(write: Write, now_ms: int) -> int:
    """How much of its lease a claim has left by the plain clock, which is what others are told."""
    return write.lease_ms - (now_ms - write.renewed_ms)


def registered_message(write: Write, number: int, now_ms: int) -> Registered:
    """A claim as it is sent at ``now_ms``."""
    return Registered(
        number=number,
        registration=msgspec.Raw(write.registration.pool.body),
        relay_id=write.relay_id,
        lease_ms=write.lease_ms,
        remaining_ms=remaining(write, now_ms),
        readmitted=write.readmitted,
    )


def left_message(tombstone: Tombstone, now_ms: int) -> Deregistered:
    """A leaving as it is sent at ``now_ms``."""
    key = tombstone.deregistration.key
    return Deregistered(
        cluster_id=key.cluster_id,
        namespace=key.namespace,
        dgd_name=key.dgd_name,
        relay_id=tombstone.deregistration.relay_id,
        since_ms=now_ms - tombstone.left_ms,
        ended_since_ms=now_ms - tombstone.ended_ms,
        kept_ms=tombstone.kept_until_ms - now_ms,
        reason=tombstone.deregistration.reason,
        detail=tombstone.deregistration.detail,
    )
