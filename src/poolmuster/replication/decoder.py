"""Turns the messages of a peer into writes and tombstones on this instance's clock.

A `DeltaDecoder` reads the log of one boot of a peer, in order:

| delta | result |
| --- | --- |
| of another boot | `OutOfSync`: a new decoder is due |
| after 0 | all that is registered with the peer |
| after the last ``seq`` read, or earlier | decoded; what repeats changes nothing |
| after a later ``seq`` | `OutOfSync`: a message was lost; ask again after the last ``seq`` read |
| renews a number that is not known | `OutOfSync`: ask again after 0 |
"""

from collections.abc import Iterable

import msgspec

from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Registration
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.messages import (
    AHEAD_LIMIT_MS,
    Delta,
    Deregistered,
    Entry,
    Registered,
    item_of,
    registration_of,
)


class OutOfSync(Exception):
    """A message does not follow from those before it; ask the peer again after ``seq``."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq


EVICT_EVERY_MS = 60_000

WRITE_AHEAD_LIMIT_MS = AHEAD_LIMIT_MS // 2
"""How far ahead of now a write may stand, whatever its sender says: every later write of the pool is ahead of it."""

SLOT_BYTES = 500
"""About the memory that a registration takes beside its body."""


class RegistrationSlot(msgspec.Struct, gc=False):
    """The registration of one number, ``None`` where it was not valid. The peer drops the number by ``until_ms``."""

    registration: Registration | None
    lease_ms: int
    readmitted: bool
    until_ms: int

    @property
    def size_bytes(self) -> int:
        return SLOT_BYTES + (0 if self.registration is None else self.registration.pool.size_bytes)


class DeltaDecoder:
    """Decodes the deltas of the boot ``boot_id``. ``seq`` is how far it was read; 0 before the first delta."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self.seq = 0
        self.skipped = 0
        """The number of entries that were not valid. They do not affect others."""
        self.size_bytes = 0
        """About the memory that the peer's registrations take here."""
        self._slots: dict[int, RegistrationSlot] = {}
        self._numbers: dict[PoolKey, int] = {}
        self._evicted_ms = 0

    def decode(self, delta: Delta, as_of_ms: int, uncertainty_ms: int = 0) -> list[Write | Tombstone]:
        """The writes and tombstones of ``delta``, which was sent at ``as_of_ms`` of this clock.

        Where it was polled that is the start of the request, and it was sent up to ``uncertainty_ms`` later.

        Raises `OutOfSync`, with nothing changed.
        """
        if delta.boot_id != self.boot_id:
            raise OutOfSync("Another boot answers.", 0)
        if delta.after > self.seq:
            raise OutOfSync(f"What came after {self.seq} was lost.", self.seq)
        self._check_numbers(delta)
        self.seq = max(self.seq, delta.seq)
        decoded = [self._decode_entry(entry, as_of_ms, uncertainty_ms) for entry in delta.entries]
        items = [item for item in decoded if item is not None]
        self._evict(as_of_ms)
        return items

    def _check_numbers(self, delta: Delta) -> None:
        new = {entry.number for entry in delta.entries if isinstance(entry, Registered)}
        for entry in delta.entries:
            if not isinstance(entry, Deregistered) and entry.number not in new and entry.number not in self._slots:
                raise OutOfSync(f"Nothing is known of number {entry.number}.", 0)

    def _decode_entry(self, entry: Entry, as_of_ms: int, uncertainty_ms: int) -> Write | Tombstone | None:
        try:
            if isinstance(entry, Deregistered):
                return item_of(entry, self.boot_id, as_of_ms)
            if isinstance(entry, Registered):
                self._store(entry, as_of_ms)
        except InvalidInput:
            self.skipped += 1
            return None
        slot = self._slots[entry.number]
        renewed_ms = as_of_ms - (slot.lease_ms - min(entry.remaining_ms, slot.lease_ms + WRITE_AHEAD_LIMIT_MS))
        slot.until_ms = max(slot.until_ms, renewed_ms + 2 * slot.lease_ms)
        if slot.registration is None:
            return None
        return Write(slot.registration, slot.lease_ms, renewed_ms, self.boot_id, slot.readmitted, uncertainty_ms)

    def _store(self, entry: Registered, as_of_ms: int) -> None:
        """Store the registration of ``entry.number``, and drop an earlier number of the same pool.

        Raises `InvalidInput`; the number is known then, without a registration.
        """
        self._drop(entry.number)
        slot = self._slots[entry.number] = RegistrationSlot(None, entry.lease_ms, entry.readmitted, as_of_ms)
        try:
            slot.registration = registration_of(entry)
        finally:
            self.size_bytes += slot.size_bytes
        before = self._numbers.setdefault(slot.registration.key, entry.number)
        if before < entry.number:
            self._drop(before)
            self._numbers[slot.registration.key] = entry.number

    def _drop(self, number: int) -> None:
        slot = self._slots.pop(number, None)
        if slot is None:
            return
        self.size_bytes -= slot.size_bytes
        if slot.registration is not None and self._numbers.get(slot.registration.key) == number:
            del self._numbers[slot.registration.key]

    def _evict(self, now_ms: int) -> None:
        if now_ms - self._evicted_ms > EVICT_EVERY_MS:
            self._evicted_ms = now_ms
            for number in [number for number, slot in self._slots.items() if slot.until_ms <= now_ms]:
                self._drop(number)


def decode_snapshot(
    entries: Iterable[Registered | Deregistered], origin: str, as_of_ms: int, uncertainty_ms: int = 0
) -> tuple[list[Write | Tombstone], int]:
    """The writes and tombstones of a snapshot, and the number of its entries that were not valid.

    It was sent at ``as_of_ms``, the start of its request, or up to ``uncertainty_ms`` later.
    """
    items: list[Write | Tombstone] = []
    skipped = 0
    for entry in entries:
        try:
            items.append(item_of(entry, origin, as_of_ms, uncertainty_ms))
        except InvalidInput:
            skipped += 1
    return items, skipped


DRIFT_DIVISOR = 1000
"""Two clocks may drift apart by this fraction of the time passed: quartz, or a clock that is being slewed."""


class DelayEstimator:
    """Estimates when the messages of one connection were sent, between two clocks that share no zero.

    Arrival less sending is the difference of the clocks plus the delay. The smallest such value of the connection
    counts as a delay of 0, and all above it as delay: it is taken off what a message says remains. So a message that
    was held up does not lengthen a lease. A new connection starts anew, as a machine may have slept in between.
    """

    def __init__(self) -> None:
        self._smallest_ms: int | None = None
        self._measured_ms = 0

    def to_local_ms(self, sent_ms: int, arrived_ms: int) -> int:
        """The time on this clock at which a message with ``sent_ms`` was sent that arrived at ``arrived_ms``."""
        apart_ms = arrived_ms - sent_ms
        drift_ms = (arrived_ms - self._measured_ms) // DRIFT_DIVISOR
        if self._smallest_ms is not None:
            apart_ms = min(apart_ms, self._smallest_ms + drift_ms)
        if self._smallest_ms is None or apart_ms < self._smallest_ms or drift_ms:
            self._smallest_ms, self._measured_ms = apart_ms, arrived_ms
        return sent_ms + apart_ms
