"""The replica: writes and tombstones of every origin become one list, in updates for the lease table.

For each pool `poolmuster.replication.lww` says which write wins. A write that begins to win is a renewal for what
remains of its lease; one that is superseded without a successor is a deregistration. The lease table alone ends
leases. Items of peers do not enter the log: each instance passes on what it accepted itself, and its snapshot only to
an instance that asks for it.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from poolmuster.model.change import Deregistration, PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool, Registration
from poolmuster.registry.relay_records import RelayRecord, RelayRecords, check_not_deregistered
from poolmuster.registry.updates import Renewal, SourceUpdate
from poolmuster.replication.log import ReplicationLog
from poolmuster.replication.lww import LwwRegister, Tombstone, Write
from poolmuster.replication.messages import Deregistered, Registered, entry_of

GRACE_MS = 3_000
"""How much longer than a lease a tombstone is kept: a heartbeat that was in flight may be accepted after it.
Writes are kept as long, as one of them may say that its relay was admitted again."""

EVICT_BATCH = 1_000

PAUSES_LIMIT = 64
"""The number of pauses kept. A lease that was renewed before the oldest of them has long expired or been renewed."""


class ReplicatedPool(msgspec.Struct, gc=False):
    """A pool that is live, or was a short while ago. Its register does not matter any more after ``until_ms``."""

    register: LwwRegister
    until_ms: int


class Replica:
    """The registrations of all instances as this one, with ``boot_id`` and leases of ``lease_ms``, knows them."""

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
        """The number of pools that are live, or were a short while ago."""
        return len(self._pools)

    def knows(self, key: PoolKey) -> bool:
        """Whether ``key`` is one of these."""
        return key in self._pools

    def paused(self, ended_ms: int, length_ms: int) -> None:
        """This process was stopped. To be called before anything that happens after the pause (rule L5)."""
        self._pause_log.record(ended_ms, length_ms)

    def put(self, registration: Registration, now_ms: int) -> SourceUpdate[PoolKey, Pool]:
        """Accept a registration. Raises `RelayDeregistered`, with nothing changed."""
        key, relay_id = registration.key, registration.relay_id
        self._check_not_deregistered(key, relay_id, now_ms)
        register = self._register(key, now_ms + self._lease_ms + GRACE_MS)
        write = Write(
            registration=registration,
            lease_ms=self._lease_ms,
            renewed_ms=register.next_write_ms(registration, now_ms),
            origin=self._boot_id,
            readmitted=relay_id is not None and register.was_deregistered_by(relay_id, now_ms),
        )
        register.add_write(write)
        self.log.record_write(write)
        return self._update([self._renewal(write, now_ms)], now_ms)

    def _check_not_deregistered(self, key: PoolKey, relay_id: str | None, now_ms: int) -> None:
        if relay_id is None:
            return
        left_relay_id, at_ms = None, now_ms
        if (pool := self._pools.get(key)) is not None:
            if (tombstone := pool.register.last_tombstone(now_ms)) is not None:
                left_relay_id, at_ms = tombstone.relay_id, tombstone.deregistered_ms
        elif (record := self._departed.get(key)) is not None:
            left_relay_id, at_ms = record.left_relay_id, record.at_ms
        check_not_deregistered(relay_id, left_relay_id, at_ms, now_ms)

    def deregister(self, deregistration: PoolDeregistration, now_ms: int) -> SourceUpdate[PoolKey, Pool] | None:
        """Accept a deregistration; ``None`` where it does not act: unknown key, or another relay was the latest."""
        key, relay_id = deregistration.key, deregistration.relay_id
        if self._departed.deregister(key, relay_id, now_ms):
            return None
        latest = self._pools[key].register.latest() if key in self._pools else None
        if latest is None or (relay_id is not None and relay_id != latest.relay_id):
            return None
        kept_until_ms = now_ms + max(self._lease_ms, latest.lease_ms) + GRACE_MS
        register = self._register(key, kept_until_ms)
        deregistered_ms = register.next_timestamp_ms(now_ms)
        tombstone = Tombstone(
            deregistration=deregistration,
            deregistered_ms=deregistered_ms,
            ended_ms=deregistered_ms if relay_id is None else latest.renewed_ms,
            kept_until_ms=kept_until_ms,
        )
        before = register.winner(now_ms)
        register.add_tombstone(tombstone)
        self.log.record_tombstone(tombstone)
        return self._update([self._outcome(key, before, now_ms)], now_ms)

    def apply_remote(self, items: Iterable[Write | Tombstone], now_ms: int) -> SourceUpdate[PoolKey, Pool]:
        """Merge writes and tombstones of peers."""
        winners: dict[PoolKey, Write | None] = {}
        for item in items:
            key, grace_ms = item.key, GRACE_MS if isinstance(item, Write) else 0
            register = self._register(key, now_ms + item.remaining_ms(now_ms) + grace_ms)
            if key not in winners:
                winners[key] = register.winner(now_ms)
            if isinstance(item, Tombstone):
                register.add_tombstone(item)
            else:
                register.add_write(item)
        return self._update([self._outcome(key, before, now_ms) for key, before in winners.items()], now_ms)

    def _outcome(self, key: PoolKey, before: Write | None, now_ms: int) -> Renewal[Pool] | PoolDeregistration | None:
        """What the lease table has to learn of ``key``, for which ``before`` won so far."""
        register = self._pools[key].register
        own = self.log.write_of(key)
        if own is not None and register.superseded_by(own, now_ms) is not None:
            self.log.drop(key)
        winner = register.winner(now_ms)
        if winner is not None and before is not None and winner.order == before.order:
            return None
        if winner is not None and self._remaining_ms(winner, now_ms) > 0:
            return self._renewal(winner, now_ms)
        tombstone = None if before is None else register.superseded_by(before, now_ms)
        return None if tombstone is None else tombstone.deregistration

    def _remaining_ms(self, write: Write, now_ms: int) -> int:
        return min(write.lease_ms, write.lease_ms - self._pause_log.elapsed_ms(write.renewed_ms, now_ms))

    def _renewal(self, write: Write, now_ms: int) -> Renewal[Pool]:
        return Renewal(write.registration.pool, write.relay_id, write.lease_ms, self._remaining_ms(write, now_ms))

    @staticmethod
    def _update(
        outcomes: Sequence[Renewal[Pool] | PoolDeregistration | None], now_ms: int
    ) -> SourceUpdate[PoolKey, Pool]:
        return SourceUpdate(
            started_ms=now_ms,
            renewals=tuple(each for each in outcomes if isinstance(each, Renewal)),
            deregistrations=tuple(each for each in outcomes if isinstance(each, Deregistration)),
        )

    def _register(self, key: PoolKey, until_ms: int) -> LwwRegister:
        """The register of ``key``, made where it is missing, kept until ``until_ms`` at least."""
        pool = self._pools.get(key)
        if pool is None:
            self._departed.pop(key)
            pool = self._pools[key] = ReplicatedPool(LwwRegister(), until_ms)
        pool.until_ms = max(pool.until_ms, until_ms)
        self._pools.move_to_end(key)
        return pool.register

    def items(self) -> list[ReplicatedPool]:
        """All pools: their `snapshot_entries` are the snapshot for an instance that starts."""
        return list(self._pools.values())

    @staticmethod
    def snapshot_entries(pool: ReplicatedPool, now_ms: int) -> Iterator[Registered | Deregistered]:
        """The entries of one pool: the tombstones that count, and the write that wins."""
        for tombstone in pool.register.live_tombstones(now_ms):
            yield entry_of(tombstone, 0, now_ms)
        write = pool.register.winner(now_ms)
        if write is not None and write.remaining_ms(now_ms) > 0:
            yield entry_of(write, 0, now_ms)

    def evict(self, now_ms: int) -> None:
        """Drop what is over, a bounded number at each call. A pool becomes a record, which is dropped in an hour."""
        self.log.evict(now_ms)
        for _ in range(min(EVICT_BATCH, len(self._pools))):
            key, pool = next(iter(self._pools.items()))
            if self._is_over(pool, now_ms):
                del self._pools[key]
                self._record_departed(key, pool.register, now_ms)
            else:
                self._pools.move_to_end(key)
        self._departed.evict(now_ms)

    def _is_over(self, pool: ReplicatedPool, now_ms: int) -> bool:
        if pool.until_ms > now_ms:
            return False
        write = pool.register.winner(now_ms)
        return write is None or self._remaining_ms(write, now_ms) <= 0

    def _record_departed(self, key: PoolKey, register: LwwRegister, now_ms: int) -> None:
        latest, tombstone = register.latest(), register.last_tombstone(now_ms)
        if latest is not None:
            at_ms = latest.renewed_ms if tombstone is None else tombstone.deregistered_ms
            left_relay_id = None if tombstone is None else tombstone.relay_id
            self._departed.put(key, RelayRecord(latest.relay_id, left_relay_id, at_ms, departed=True))


class PauseLog:
    """The pauses of this process, for times in the past: some that peers send lie within a pause."""

    def __init__(self) -> None:
        self._pauses: deque[tuple[int, int]] = deque(maxlen=PAUSES_LIMIT)

    def record(self, ended_ms: int, length_ms: int) -> None:
        """The process was stopped for ``length_ms`` until ``ended_ms``. Pauses come in order and do not overlap."""
        if length_ms > 0:
            self._pauses.append((ended_ms - length_ms, ended_ms))

    def elapsed_ms(self, from_ms: int, to_ms: int) -> int:
        """The lease time, which is the monotonic clock less the pauses (rule L5), between two times."""
        paused_ms = sum(max(0, min(ended_ms, to_ms) - max(began_ms, from_ms)) for began_ms, ended_ms in self._pauses)
        return to_ms - from_ms - paused_ms
