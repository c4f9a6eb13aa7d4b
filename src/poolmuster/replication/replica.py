"""Merging: what was registered here and what peers said become one list, in `SourceUpdate`s for the roster.

Of each pool `poolmuster.replication.lww` says which claim holds. Here is what that means for the roster: a claim that
begins to hold is a renewal for what remains of its lease, one that is beaten without a successor is a departure. Ends
of leases are the roster's own. Nothing that was heard goes into the journal: each instance passes on what it took
itself, and the whole of its list only to one that starts.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from poolmuster.model.change import Deregistration, PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool, Registration
from poolmuster.registry.relay_records import RelayRecord, RelayRecords, check_not_deregistered
from poolmuster.registry.updates import Renewal, SourceUpdate
from poolmuster.replication.log import ReplicationLog, left_message, registered_message, remaining
from poolmuster.replication.lww import LwwRegister, Tombstone, Write
from poolmuster.replication.messages import Deregistered, Registered
from poolmuster.replication.pause_log import PauseLog

GRACE_MS = 3_000
"""How much longer than a lease a leaving is kept: a heartbeat that was under way may have been taken after it.
Claims are kept as long, as one of them may say that its relay was let in again."""

EVICT_BATCH = 1_000


class ReplicatedPool(msgspec.Struct, gc=False):
    """A pool that is live, or was a short while ago. ``until_ms`` is when nothing of it matters any more."""

    register: LwwRegister
    until_ms: int


class Replica:
    """The claims of all instances that this one (``boot_id``) knows of. Its own leases are ``lease_ms`` long."""

    def __init__(self, boot_id: str, lease_ms: int) -> None:
        self._boot_id = boot_id
        self._lease_ms = lease_ms
        self._pools: OrderedDict[PoolKey, ReplicatedPool] = OrderedDict()
        self._departed = RelayRecords[PoolKey](lease_ms)
        self._pause_log = PauseLog()
        self.log = ReplicationLog()

    def __len__(self) -> int:
        return len(self._pools) + len(self._departed)

    @property
    def live_count(self) -> int:
        """How many pools are live, or were a short while ago."""
        return len(self._pools)

    def knows(self, key: PoolKey) -> bool:
        """Whether it is one of these."""
        return key in self._pools

    def paused(self, ended_ms: int, length_ms: int) -> None:
        """This process was stopped; say so before what comes after is put, left or heard (rule L5)."""
        self._pause_log.record(ended_ms, length_ms)

    def put(self, registration: Registration, now_ms: int) -> SourceUpdate[PoolKey, Pool]:
        """Take a registration. Raises `RelayDeregistered`, with nothing changed."""
        key, relay_id = registration.key, registration.relay_id
        self._check_not_left(key, relay_id, now_ms)
        known = self._touch(key, now_ms + self._lease_ms + GRACE_MS)
        write = Write(
            registration=registration,
            lease_ms=self._lease_ms,
            renewed_ms=known.register.next_write_ms(registration, now_ms),
            origin=self._boot_id,
            readmitted=relay_id is not None and known.register.was_deregistered_by(relay_id, now_ms),
        )
        known.register.add_write(write)
        self.log.record_write(write)
        renewal = Renewal(registration.pool, relay_id, self._lease_ms, self._lease_ms)
        return SourceUpdate(started_ms=now_ms, renewals=(renewal,))

    def _check_not_left(self, key: PoolKey, relay_id: str | None, now_ms: int) -> None:
        if relay_id is None:
            return
        left_relay_id, at_ms = None, now_ms
        if (known := self._pools.get(key)) is not None:
            if (tombstone := known.register.last_tombstone(now_ms)) is not None:
                left_relay_id, at_ms = tombstone.deregistration.relay_id, tombstone.left_ms
        elif (record := self._departed.get(key)) is not None:
            left_relay_id, at_ms = record.left_relay_id, record.at_ms
        check_not_deregistered(relay_id, left_relay_id, at_ms, now_ms)

    def deregister(self, departure: PoolDeregistration, now_ms: int) -> SourceUpdate[PoolKey, Pool] | None:
        """Take a deregistration; ``None`` where it does not act: unknown key, or another relay was the latest."""
        key, relay_id = departure.key, departure.relay_id
        if self._departed.deregister(key, relay_id, now_ms):
            return None
        latest = self._pools[key].register.latest() if key in self._pools else None
        if latest is None or (relay_id is not None and relay_id != latest.relay_id):
            return None
        known = self._touch(key, now_ms + self._lease_ms + GRACE_MS)
        left_ms = known.register.next_timestamp_ms(now_ms)
        tombstone = Tombstone(
            deregistration=departure,
            left_ms=left_ms,
            ended_ms=left_ms if relay_id is None else latest.renewed_ms,
            kept_until_ms=now_ms + max(self._lease_ms, latest.lease_ms) + GRACE_MS,
        )
        before = known.register.winner(now_ms)
        known.register.add_tombstone(tombstone)
        known.until_ms = max(known.until_ms, tombstone.kept_until_ms)
        self.log.record_tombstone(tombstone)
        return self._update({key: before}, now_ms)

    def apply_remote(self, said: Iterable[Write | Tombstone], now_ms: int) -> SourceUpdate[PoolKey, Pool]:
        """Take in what peers say."""
        before: dict[PoolKey, Write | None] = {}
        for each in said:
            if isinstance(each, Tombstone):
                key, until_ms = each.deregistration.key, each.kept_until_ms
            else:
                key, until_ms = each.registration.key, each.renewed_ms + each.lease_ms + GRACE_MS
            known = self._touch(key, until_ms)
            if key not in before:
                before[key] = known.register.winner(now_ms)
            if isinstance(each, Tombstone):
                known.register.add_tombstone(each)
            else:
                known.register.add_write(each)
        return self._update(before, now_ms)

    def _update(self, before: dict[PoolKey, Write | None], now_ms: int) -> SourceUpdate[PoolKey, Pool]:
        """What the roster is told, where ``before`` held so far. Of a pool either a renewal or a departure."""
        told = [self._outcome(key, write, now_ms) for key, write in before.items()]
        return SourceUpdate(
            started_ms=now_ms,
            renewals=tuple(each for each in told if isinstance(each, Renewal)),
            deregistrations=tuple(each for each in told if isinstance(each, Deregistration)),
        )

    def _outcome(self, key: PoolKey, before: Write | None, now_ms: int) -> Renewal[Pool] | PoolDeregistration | None:
        claims = self._pools[key].register
        own = self.log.write_of(key)
        if own is not None and claims.superseded_by(own, now_ms) is not None:
            self.log.drop(key)
        holds = claims.winner(now_ms)
        if holds is not None and before is not None and holds.timestamp == before.timestamp:
            return None
        if holds is not None and (remaining_ms := self._remaining_ms(holds, now_ms)) > 0:
            return Renewal(holds.registration.pool, holds.relay_id, holds.lease_ms, remaining_ms)
        tombstone = None if before is None else claims.superseded_by(before, now_ms)
        return None if tombstone is None else tombstone.deregistration

    def _remaining_ms(self, write: Write, now_ms: int) -> int:
        return min(write.lease_ms, write.lease_ms - self._pause_log.elapsed_ms(write.renewed_ms, now_ms))

    def _touch(self, key: PoolKey, until_ms: int) -> ReplicatedPool:
        known = self._pools.get(key)
        if known is None:
            self._departed.pop(key)
            known = self._pools[key] = ReplicatedPool(LwwRegister(), until_ms)
        known.until_ms = max(known.until_ms, until_ms)
        self._pools.move_to_end(key)
        return known

    def snapshot(self, now_ms: int) -> Iterator[Registered | Deregistered]:
        """All that is listed or remembered, for an instance that starts."""
        for known in self._pools.values():
            yield from self.snapshot_entries(known, now_ms)

    def items(self) -> list[ReplicatedPool]:
        """All that `told` is to be asked of, where a whole list is told piece by piece."""
        return list(self._pools.values())

    def snapshot_entries(self, known: ReplicatedPool, now_ms: int) -> Iterator[Registered | Deregistered]:
        """What a whole list says of one pool."""
        for tombstone in known.register.live_tombstones(now_ms):
            yield left_message(tombstone, now_ms)
        write = known.register.winner(now_ms)
        if write is not None and remaining(write, now_ms) > 0:
            yield registered_message(write, 0, now_ms)

    def evict(self, now_ms: int) -> None:
        """Drop what is over, a bounded number a turn: pools to their record, records after an hour."""
        self.log.evict(now_ms)
        for _ in range(min(EVICT_BATCH, len(self._pools))):
            key, known = next(iter(self._pools.items()))
            if self._is_over(known, now_ms):
                del self._pools[key]
                self._remember(key, known, now_ms)
            else:
                self._pools.move_to_end(key)
        self._departed.evict(now_ms)

    def _is_over(self, known: ReplicatedPool, now_ms: int) -> bool:
        if known.until_ms > now_ms:
            return False
        write = known.register.winner(now_ms)
        return write is None or self._remaining_ms(write, now_ms) <= 0

    def _remember(self, key: PoolKey, known: ReplicatedPool, now_ms: int) -> None:
        latest, tombstone = known.register.latest(), known.register.last_tombstone(now_ms)
        if latest is None:
            return
        at_ms = latest.renewed_ms if tombstone is None else tombstone.left_ms
        left_relay_id = tombstone.deregistration.relay_id if tombstone else None
        self._departed.put(key, RelayRecord(latest.relay_id, left_relay_id, at_ms, departed=True))
