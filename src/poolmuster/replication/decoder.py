"""What one boot of a peer says, read in order: its batches become claims and leavings by this instance's clock.

| batch | what happens |
| --- | --- |
| of another boot | `OutOfSync`: a new feed is due |
| after 0 | all that was registered with the peer; what was known before is known anew |
| after what was read, or earlier | taken; what repeats changes nothing |
| after more than was read | `OutOfSync`: something was lost; ask again after `seq` |
| renews a number that is not known | `OutOfSync`: ask again after 0 |
"""

from collections.abc import Iterable

import msgspec

from poolmuster.model.change import Deregistration
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey, check_key
from poolmuster.model.registration import Registration, parse_registration
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.messages import Delta, Deregistered, Entry, Registered


class OutOfSync(Exception):
    """The peer said what does not follow from what it said before; ask it again after ``seq``."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq


EVICT_EVERY_MS = 60_000

WRITE_AHEAD_LIMIT_MS = 60_000
"""How far ahead of now a claim may stand that is taken in, whatever its sender says: whoever registers after it stands
later still."""

SLOT_BYTES = 500
"""About what a registration takes beside its facts."""


class RegistrationSlot(msgspec.Struct, gc=False):
    """A registration under its number, until ``until_ms``, when the peer has forgotten that number as well.

    ``registration`` is ``None`` where it was not valid.
    """

    registration: Registration | None
    lease_ms: int
    readmitted: bool
    until_ms: int

    @property
    def size_bytes(self) -> int:
        return SLOT_BYTES + (0 if self.registration is None else self.registration.pool.size_bytes)


class DeltaDecoder:
    """The feed of the boot ``boot_id``. ``seq`` is how far it was read; 0 before all of it was read once."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self.seq = 0
        self.skipped = 0
        """Entries that were no valid registration: they hide no other."""
        self.size_bytes = 0
        """About what is remembered of the peer's registrations, for whoever sets it a bound."""
        self._slots: dict[int, RegistrationSlot] = {}
        self._numbers: dict[PoolKey, int] = {}
        self._evicted_ms = 0

    def decode(self, batch: Delta, said_ms: int) -> list[Write | Tombstone]:
        """The writes and tombstones of ``batch``, sent at ``said_ms`` of this clock.

        Raises `OutOfSync`, with nothing changed.
        """
        if batch.boot_id != self.boot_id:
            raise OutOfSync("Another boot answers.", 0)
        if batch.after > self.seq:
            raise OutOfSync(f"What came after {self.seq} was lost.", self.seq)
        self._check_numbers(batch)
        self.seq = max(self.seq, batch.seq)
        said = [each for entry in batch.entries if (each := self._read(entry, said_ms)) is not None]
        self._evict(said_ms)
        return said

    def _check_numbers(self, batch: Delta) -> None:
        new = {entry.number for entry in batch.entries if isinstance(entry, Registered)}
        for entry in batch.entries:
            if not isinstance(entry, Deregistered) and entry.number not in new and entry.number not in self._slots:
                raise OutOfSync(f"Nothing is known of number {entry.number}.", 0)

    def _read(self, entry: Entry, said_ms: int) -> Write | Tombstone | None:
        try:
            if isinstance(entry, Deregistered):
                return tombstone_of(entry, said_ms)
            if isinstance(entry, Registered):
                self._store(entry, said_ms)
        except InvalidInput:
            self.skipped += 1
            return None
        facts = self._slots[entry.number]
        renewed_ms = said_ms - (facts.lease_ms - min(entry.remaining_ms, facts.lease_ms + WRITE_AHEAD_LIMIT_MS))
        facts.until_ms = max(facts.until_ms, renewed_ms + 2 * facts.lease_ms)
        if facts.registration is None:
            return None
        return Write(facts.registration, facts.lease_ms, renewed_ms, self.boot_id, facts.readmitted)

    def _store(self, entry: Registered, said_ms: int) -> None:
        """Remember what ``entry.number`` stands for, and forget the number before it of the same pool.

        Raises `InvalidInput`, and then it is remembered that nothing can be known of that number.
        """
        self._drop(entry.number)
        facts = self._slots[entry.number] = RegistrationSlot(None, entry.lease_ms, entry.readmitted, said_ms)
        self.size_bytes += facts.size_bytes
        registration = registration_of(entry)
        self.size_bytes -= facts.size_bytes
        facts.registration = registration
        self.size_bytes += facts.size_bytes
        before = self._numbers.get(registration.key)
        if before is not None and before < entry.number:
            self._drop(before)
        if before is None or before < entry.number:
            self._numbers[registration.key] = entry.number

    def _drop(self, number: int) -> None:
        facts = self._slots.pop(number, None)
        if facts is None:
            return
        self.size_bytes -= facts.size_bytes
        if facts.registration is not None and self._numbers.get(facts.registration.key) == number:
            del self._numbers[facts.registration.key]

    def _evict(self, now_ms: int) -> None:
        if now_ms - self._evicted_ms > EVICT_EVERY_MS:
            self._evicted_ms = now_ms
            for number in [number for number, facts in self._slots.items() if facts.until_ms <= now_ms]:
                self._drop(number)


def registration_of(entry: Registered) -> Registration:
    """The registration itself. Raises `InvalidInput`."""
    return Registration(parse_registration(bytes(entry.registration), lenient=True).pool, entry.relay_id)


def write_of(entry: Registered, holder: str, said_ms: int) -> Write:
    """A claim that was told at ``said_ms`` of this clock. Raises `InvalidInput`."""
    renewed_ms = said_ms - (entry.lease_ms - entry.remaining_ms)
    return Write(registration_of(entry), entry.lease_ms, renewed_ms, holder, entry.readmitted)


def tombstone_of(entry: Deregistered, said_ms: int) -> Tombstone:
    """A leaving that was told at ``said_ms`` of this clock. Raises `InvalidInput`."""
    key = PoolKey(entry.cluster_id, entry.namespace, entry.dgd_name)
    check_key(key)
    return Tombstone(
        deregistration=Deregistration(key=key, relay_id=entry.relay_id, reason=entry.reason, detail=entry.detail),
        left_ms=said_ms - entry.since_ms,
        ended_ms=said_ms - entry.ended_since_ms,
        kept_until_ms=said_ms + entry.kept_ms,
    )


def decode_snapshot(
    entries: Iterable[Registered | Deregistered], holder: str, said_ms: int
) -> tuple[list[Write | Tombstone], int]:
    """All of a whole list, and how many entries of it were not valid."""
    said: list[Write | Tombstone] = []
    skipped = 0
    for entry in entries:
        try:
            said.append(
                tombstone_of(entry, said_ms) if isinstance(entry, Deregistered) else write_of(entry, holder, said_ms)
            )
        except InvalidInput:
            skipped += 1
    return said, skipped
