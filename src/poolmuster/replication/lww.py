"""A last-writer-wins register with tombstones for each pool: which registration of it wins.

A *write* is a registration that one instance, its *origin*, accepted. A *tombstone* is a deregistration. Times are
this instance's monotonic clock, whichever instance the item came from. Rules:

- of the writes that no tombstone supersedes the latest wins, whichever its origin;
- a tombstone supersedes every write up to the renewal that it ended. Without a relay id that is the time of the
  deregistration itself. With one it is the last renewal of that relay: a successor that registered since with another
  instance stays, as it would have stayed with one instance;
- a tombstone of a relay supersedes every write of that relay, whatever the clocks say of their order: a relay that
  deregistered takes a new id. Where the relay was admitted again after a successor, its write is marked ``readmitted``
  and only the times count;
- a polled write was accepted within ``uncertainty_ms`` of ``renewed_ms``. By the times a tombstone supersedes it only
  where the latest of them is early enough: it may be a successor's, and that relay's next heartbeat is seconds away;
- a tombstone is kept until every lease that it ended would have expired.

Adding items commutes and is idempotent: any order and any repetition end in the same register. What an instance does
itself gets a timestamp after everything that it knows, so causes come before their effects.
"""

import msgspec

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Registration

RELAYS_LIMIT = 8
"""The number of relays whose latest writes, and latest tombstones, one register keeps."""


class Write(msgspec.Struct, frozen=True, gc=False):
    """A registration that the instance with the boot id ``origin`` accepted at ``renewed_ms`` for ``lease_ms``.

    It was accepted up to ``uncertainty_ms`` later than that, where the message that held it does not say more exactly.
    """

    registration: Registration
    lease_ms: int
    renewed_ms: int
    origin: str
    readmitted: bool = False
    uncertainty_ms: int = 0

    @property
    def key(self) -> PoolKey:
        return self.registration.key

    @property
    def relay_id(self) -> str | None:
        return self.registration.relay_id

    @property
    def order(self) -> tuple[int, str, str, bytes]:
        """By time, and by the rest where two instances accept a write in the same millisecond."""
        return (self.renewed_ms, self.origin, self.relay_id or "", self.registration.pool.body)

    @property
    def renewed_by_ms(self) -> int:
        """The latest time at which it may have been accepted."""
        return self.renewed_ms + self.uncertainty_ms

    def remaining_ms(self, now_ms: int) -> int:
        """What remains of the lease by the monotonic clock, without credit for pauses: the value that peers get."""
        return self.lease_ms - (now_ms - self.renewed_ms)


class Tombstone(msgspec.Struct, frozen=True, gc=False):
    """A deregistration at ``deregistered_ms``, which ended the renewal at ``ended_ms`` and all before it.

    It counts until ``kept_until_ms``.
    """

    deregistration: PoolDeregistration
    deregistered_ms: int
    ended_ms: int
    kept_until_ms: int

    @property
    def key(self) -> PoolKey:
        return self.deregistration.key

    @property
    def relay_id(self) -> str | None:
        return self.deregistration.relay_id

    @property
    def order(self) -> tuple[int, int, str, str]:
        return (self.deregistered_ms, self.ended_ms, self.deregistration.reason or "", self.deregistration.detail or "")

    def remaining_ms(self, now_ms: int) -> int:
        """For how long it counts."""
        return self.kept_until_ms - now_ms

    def supersedes(self, write: Write) -> bool:
        """Whether it ended ``write``."""
        if write.renewed_by_ms <= self.ended_ms:
            return True
        return self.relay_id is not None and self.relay_id == write.relay_id and not write.readmitted


class LwwRegister:
    """The writes and tombstones of one pool: the latest of each relay."""

    __slots__ = ("_tombstones", "_writes")

    def __init__(self) -> None:
        self._writes: dict[str | None, Write] = {}
        self._tombstones: dict[str | None, Tombstone] = {}

    def add_write(self, write: Write) -> None:
        """Add a write, of this instance or of a peer."""
        known = self._writes.get(write.relay_id)
        if known is not None:
            later = max(known, write, key=lambda each: each.order)
            readmitted = known.readmitted or write.readmitted
            uncertainty_ms = max(known.renewed_by_ms, write.renewed_by_ms) - later.renewed_ms
            write = later
            if (readmitted, uncertainty_ms) != (later.readmitted, later.uncertainty_ms):
                write = msgspec.structs.replace(later, readmitted=readmitted, uncertainty_ms=uncertainty_ms)
        self._writes[write.relay_id] = write
        if len(self._writes) > RELAYS_LIMIT:
            del self._writes[min(self._writes.values(), key=lambda each: each.order).relay_id]

    def add_tombstone(self, tombstone: Tombstone) -> None:
        """Add a tombstone, of this instance or of a peer."""
        known = self._tombstones.get(tombstone.relay_id)
        if known is not None:
            later = max(known, tombstone, key=lambda each: each.order)
            tombstone = Tombstone(
                later.deregistration,
                later.deregistered_ms,
                max(known.ended_ms, tombstone.ended_ms),
                max(known.kept_until_ms, tombstone.kept_until_ms),
            )
        self._tombstones[tombstone.relay_id] = tombstone
        if len(self._tombstones) > RELAYS_LIMIT:
            del self._tombstones[min(self._tombstones.values(), key=lambda each: each.order).relay_id]

    def live_tombstones(self, now_ms: int) -> list[Tombstone]:
        """The tombstones that still count, and that a snapshot therefore holds."""
        return [tombstone for tombstone in self._tombstones.values() if tombstone.remaining_ms(now_ms) > 0]

    def superseded_by(self, write: Write, now_ms: int) -> Tombstone | None:
        """The latest tombstone that supersedes ``write``, if any does."""
        superseding = [tombstone for tombstone in self.live_tombstones(now_ms) if tombstone.supersedes(write)]
        return max(superseding, key=lambda each: each.order, default=None)

    def winner(self, now_ms: int) -> Write | None:
        """The write that wins; its lease may have expired."""
        candidates = (write for write in self._writes.values() if self.superseded_by(write, now_ms) is None)
        return max(candidates, key=lambda each: each.order, default=None)

    def latest(self) -> Write | None:
        """The latest write, whether its relay deregistered since or not."""
        return max(self._writes.values(), key=lambda each: each.order, default=None)

    def was_deregistered_by(self, relay_id: str | None, now_ms: int) -> bool:
        """Whether a tombstone of ``relay_id`` still counts."""
        return any(tombstone.relay_id == relay_id for tombstone in self.live_tombstones(now_ms))

    def last_tombstone(self, now_ms: int) -> Tombstone | None:
        """The latest tombstone, where the winner is not later."""
        tombstone = max(self._tombstones.values(), key=lambda each: each.order, default=None)
        write = self.winner(now_ms)
        if tombstone is None or (write is not None and write.renewed_ms > tombstone.deregistered_ms):
            return None
        return tombstone

    def next_timestamp_ms(self, now_ms: int) -> int:
        """The time of an event at ``now_ms``: not before any item of the register."""
        writes = [each.renewed_ms for each in self._writes.values()]
        return max([now_ms, *writes, *(each.deregistered_ms for each in self._tombstones.values())])

    def next_write_ms(self, registration: Registration, now_ms: int) -> int:
        """The time of a registration at ``now_ms``: after every item of the register but those that it repeats."""
        before = [each.deregistered_ms for each in self._tombstones.values()]
        before += [
            each.renewed_ms
            for each in self._writes.values()
            if each.relay_id != registration.relay_id or each.registration.pool.body != registration.pool.body
        ]
        return max(self.next_timestamp_ms(now_ms), max(before, default=now_ms - 1) + 1)
