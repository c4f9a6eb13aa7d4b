"""What is claimed of one pool by whom, and which claim holds.

A claim is a registration as one instance took it. A leaving is a deregistration. Times are this instance's monotonic
clock, whoever the claim was heard of. Rules:

- of the claims that no leaving beats the latest holds, whichever instance took it;
- a leaving beats every claim that is not later than the renewal which it ended. Without a relay id that is the moment
  of leaving itself. With one it is that relay's last renewal: a successor that registered since, elsewhere and unheard
  of there, stays, just as it would have, had both asked the same instance;
- a relay's leaving beats every claim of that relay, whatever the clocks say of their order, as a relay that left takes
  a new id. But where it was let in again after a successor, its claim says so, and only the times count;
- a leaving is kept until every lease that it ended would have run out.

Adding is a join: any order, any repetition gives the same. Only what an instance does itself is stamped, later than
all that it knows, so what it knew of comes before what it did.
"""

from typing import NamedTuple

import msgspec

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.registration import Registration

RELAYS_LIMIT = 8
"""How many relays' claims and leavings of one pool are kept at once, the latest."""


class Timestamp(NamedTuple):
    """The order of claims: by time, and by who holds it where two were taken in the same millisecond."""

    at_ms: int
    origin: str
    relay_id: str
    body: bytes


class Write(msgspec.Struct, frozen=True, gc=False):
    """A registration that the instance ``holder`` (its boot id) took at ``renewed_ms``, for ``lease_ms``."""

    registration: Registration
    lease_ms: int
    renewed_ms: int
    origin: str
    readmitted: bool = False

    @property
    def relay_id(self) -> str | None:
        return self.registration.relay_id

    @property
    def timestamp(self) -> Timestamp:
        return Timestamp(self.renewed_ms, self.origin, self.relay_id or "", self.registration.pool.body)


class Tombstone(msgspec.Struct, frozen=True, gc=False):
    """A deregistration at ``left_ms`` that ended the renewal at ``ended_ms`` and all before it."""

    deregistration: PoolDeregistration
    left_ms: int
    ended_ms: int
    kept_until_ms: int

    @property
    def order(self) -> tuple[int, int, str, str]:
        return (self.left_ms, self.ended_ms, self.deregistration.reason or "", self.deregistration.detail or "")

    def supersedes(self, write: Write) -> bool:
        """Whether ``claim`` is over by this leaving."""
        if write.renewed_ms <= self.ended_ms:
            return True
        relay_id = self.deregistration.relay_id
        return relay_id is not None and relay_id == write.relay_id and not write.readmitted


class LwwRegister:
    """All claims and leavings of one pool, one of each for each relay."""

    __slots__ = ("_tombstones", "_writes")

    def __init__(self) -> None:
        self._writes: dict[str | None, Write] = {}
        self._tombstones: dict[str | None, Tombstone] = {}

    def add_write(self, write: Write) -> None:
        """Take in a claim, heard or made."""
        known = self._writes.get(write.relay_id)
        if known is not None:
            later = max(known, write, key=lambda each: each.timestamp)
            readmitted = known.readmitted or write.readmitted
            write = later if later.readmitted == readmitted else msgspec.structs.replace(later, readmitted=readmitted)
        self._writes[write.relay_id] = write
        if len(self._writes) > RELAYS_LIMIT:
            del self._writes[min(self._writes.values(), key=lambda each: each.timestamp).relay_id]

    def add_tombstone(self, tombstone: Tombstone) -> None:
        """Take in a leaving, heard or made."""
        relay_id = tombstone.deregistration.relay_id
        known = self._tombstones.get(relay_id)
        if known is not None:
            later = max(known, tombstone, key=lambda each: each.order)
            tombstone = Tombstone(
                later.deregistration,
                later.left_ms,
                max(known.ended_ms, tombstone.ended_ms),
                max(known.kept_until_ms, tombstone.kept_until_ms),
            )
        self._tombstones[relay_id] = tombstone
        if len(self._tombstones) > RELAYS_LIMIT:
            del self._tombstones[min(self._tombstones.values(), key=lambda each: each.order).deregistration.relay_id]

    def live_tombstones(self, now_ms: int) -> list[Tombstone]:
        """The leavings that others may still have to hear of."""
        return [tombstone for tombstone in self._tombstones.values() if tombstone.kept_until_ms > now_ms]

    def superseded_by(self, write: Write, now_ms: int) -> Tombstone | None:
        """The latest leaving that beats ``claim``, if any does."""
        beating = [tombstone for tombstone in self.live_tombstones(now_ms) if tombstone.supersedes(write)]
        return max(beating, key=lambda each: each.order, default=None)

    def winner(self, now_ms: int) -> Write | None:
        """The claim that holds; its lease may have ended."""
        kept = self.live_tombstones(now_ms)
        status = (
            write for write in self._writes.values() if not any(tombstone.supersedes(write) for tombstone in kept)
        )
        return max(status, key=lambda each: each.timestamp, default=None)

    def latest(self) -> Write | None:
        """The claim of the relay that registered last, whether it left since or not."""
        return max(self._writes.values(), key=lambda each: each.timestamp, default=None)

    def was_deregistered_by(self, relay_id: str | None, now_ms: int) -> bool:
        """Whether ``relay_id`` left, as far as is still remembered."""
        return any(tombstone.deregistration.relay_id == relay_id for tombstone in self.live_tombstones(now_ms))

    def last_tombstone(self, now_ms: int) -> Tombstone | None:
        """The leaving that is the latest event of all, if it is one and not a registration."""
        tombstone = max(self._tombstones.values(), key=lambda each: each.order, default=None)
        write = self.winner(now_ms)
        if tombstone is None or (write is not None and write.renewed_ms > tombstone.left_ms):
            return None
        return tombstone

    def next_timestamp_ms(self, now_ms: int) -> int:
        """When what happens at ``now_ms`` is taken to happen: not before anything that is known to have happened."""
        register = max((each.renewed_ms for each in self._writes.values()), default=now_ms)
        tombstones = max((each.left_ms for each in self._tombstones.values()), default=now_ms)
        return max(now_ms, register, tombstones)

    def next_write_ms(self, registration: Registration, now_ms: int) -> int:
        """When a registration at ``now_ms`` is taken to happen: after all that is known, but for what it repeats."""
        before = [each.left_ms for each in self._tombstones.values()]
        before += [
            each.renewed_ms
            for each in self._writes.values()
            if each.relay_id != registration.relay_id or each.registration.pool.body != registration.pool.body
        ]
        return max(self.next_timestamp_ms(now_ms), max(before, default=now_ms - 1) + 1)
