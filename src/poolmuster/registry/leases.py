"""The roster: who lives, until when.

Rules of time that hold here, whatever the store:

- an entry lives from its renewal until ``remaining_ms`` after the start of the reading that showed it;
- at a reading, first the credit is added to every deadline, then the renewals are applied, then leases end;
- a renewal with equal facts changes nothing that anyone is told of.

Credit costs nothing per entry: deadlines are kept in *lease time*, the monotonic clock less all credit so far. The
queue of ends holds one item an entry, looked at again only when it comes due, so a renewal does not touch it.
"""

import heapq

import msgspec

from poolmuster.model.change import ChangeKind, Deregistration, DeregistrationReason, RemovalCause
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool, Registration
from poolmuster.registry.conflicts import Conflicts, ConflictSpan
from poolmuster.registry.updates import Renewal, SourceUpdate

EXPIRY_SCAN_FACTOR = 10
"""How many ends in the queue are looked at for one lease that may end."""

HEAP_SLACK = 1000
"""How many ends of pools that already left may stand in the queue, beside one for each that lives."""


class Lease(msgspec.Struct, gc=False):
    """One live registration. Times are lease time; ``queued_ms`` is the end under which it stands in the queue."""

    registration: Registration
    lease_ms: int
    ends_ms: int
    queued_ms: int
    renewed_ms: int
    last_relay: tuple[str, int] | None


class LeaseEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One change that the roster decided on, not yet numbered."""

    kind: ChangeKind
    before: Pool | None = None
    after: Pool | None = None
    cause: RemovalCause | None = None
    reason: DeregistrationReason | None = None
    detail: str | None = None


class LeaseTable:
    """All live registrations by key."""

    def __init__(self) -> None:
        self._leases: dict[PoolKey, Lease] = {}
        self._expiries: list[tuple[int, PoolKey]] = []
        self._credit_ms = 0
        self._longest_lease_ms = 0
        self.conflicts = Conflicts()
        self.new_conflicts: list[PoolKey] = []

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, key: PoolKey) -> Lease | None:
        """The live entry of ``key``."""
        return self._leases.get(key)

    def lease_time_ms(self, now_ms: int) -> int:
        """Lease time at ``now_ms`` of the monotonic clock."""
        return now_ms - self._credit_ms

    def remaining_ms(self, entry: Lease, now_ms: int) -> int:
        """How long ``entry`` will still live if nothing is heard of it."""
        return entry.ends_ms - self.lease_time_ms(now_ms)

    def conflict(self, key: PoolKey, now_ms: int) -> ConflictSpan | None:
        """The conflict over ``key``, if there is one now."""
        return self.conflicts.span(key, self.lease_time_ms(now_ms))

    def evict(self, now_ms: int) -> None:
        """Drop what is remembered of conflicts that are over."""
        self.conflicts.evict(self.lease_time_ms(now_ms), self._longest_lease_ms)

    def apply(self, update: SourceUpdate) -> list[LeaseEvent]:
        """Take in a reading, all but the ending of leases, which `end_leases` does in pieces."""
        self._credit_ms += update.credit_ms
        started_ms = self.lease_time_ms(update.started_ms)
        found = [self._renew(renewal, started_ms) for renewal in update.renewals]
        found += map(self._deregister, update.deregistrations)
        return [step for step in found if step is not None]

    def _renew(self, renewal: Renewal, started_ms: int) -> LeaseEvent | None:
        registration = renewal.registration
        key, pool = registration.pool.key, registration.pool
        ends_ms = started_ms + renewal.remaining_ms
        entry = self._leases.get(key)
        if entry is None:
            entry = Lease(registration, renewal.lease_ms, ends_ms, ends_ms, started_ms, self.conflicts.latest(key))
            self._record_relay(key, entry, registration.relay_id, started_ms, renewal.lease_ms)
            self._leases[key] = entry
            self._longest_lease_ms = max(self._longest_lease_ms, renewal.lease_ms)
            self._push(ends_ms, key)
            return LeaseEvent(kind=ChangeKind.ADDED, after=pool)
        self._record_relay(key, entry, registration.relay_id, started_ms, renewal.lease_ms)
        before = entry.registration.pool
        if ends_ms < entry.queued_ms:
            self._queue(key, entry, ends_ms)
        entry.lease_ms, entry.ends_ms, entry.renewed_ms = renewal.lease_ms, ends_ms, started_ms
        if before.body == pool.body:
            if entry.registration.relay_id != registration.relay_id:
                entry.registration = Registration(before, registration.relay_id)
            return None
        entry.registration = registration
        return LeaseEvent(kind=ChangeKind.CHANGED, before=before, after=pool)

    def _record_relay(self, key: PoolKey, entry: Lease, relay_id: str | None, now_ms: int, lease_ms: int) -> None:
        if relay_id is None:
            return
        last = entry.last_relay
        if (
            last is not None
            and last[0] != relay_id
            and self.conflicts.record_switch(key, last, relay_id, now_ms, lease_ms)
        ):
            self.new_conflicts.append(key)
        entry.last_relay = (relay_id, now_ms)

    def _deregister(self, deregistration: Deregistration) -> LeaseEvent | None:
        entry = self._leases.pop(deregistration.key, None)
        if entry is None:
            return None
        if entry.last_relay is not None:
            self.conflicts.record_deregistration(deregistration.key, entry.last_relay)
        return LeaseEvent(
            kind=ChangeKind.REMOVED,
            before=entry.registration.pool,
            cause=RemovalCause.DEREGISTERED,
            reason=deregistration.reason,
            detail=deregistration.detail,
        )

    def expire(self, now_ms: int, at_most: int) -> list[LeaseEvent]:
        """End at most ``at_most`` of the leases that are over; `any_over` says whether to come again.

        Ends that were put off by a renewal cost time as well, so at most ten times as many of them are looked at.
        """
        lease_now_ms = self.lease_time_ms(now_ms)
        steps: list[LeaseEvent] = []
        for _ in range(EXPIRY_SCAN_FACTOR * at_most):
            if not self.has_expired(now_ms) or len(steps) == at_most:
                break
            ends_ms, key = heapq.heappop(self._expiries)
            entry = self._leases.get(key)
            if entry is None or entry.queued_ms != ends_ms:
                continue
            if entry.ends_ms > lease_now_ms:
                self._queue(key, entry, entry.ends_ms)
                continue
            del self._leases[key]
            steps.append(
                LeaseEvent(kind=ChangeKind.REMOVED, before=entry.registration.pool, cause=RemovalCause.EXPIRED)
            )
        return steps

    def has_expired(self, now_ms: int) -> bool:
        """Whether there are leases to end, or to be looked at, as some may have been renewed."""
        return bool(self._expiries) and self._expiries[0][0] <= self.lease_time_ms(now_ms)

    def _queue(self, key: PoolKey, entry: Lease, ends_ms: int) -> None:
        entry.queued_ms = ends_ms
        self._push(ends_ms, key)

    def _push(self, ends_ms: int, key: PoolKey) -> None:
        heapq.heappush(self._expiries, (ends_ms, key))
        if len(self._expiries) > 2 * len(self._leases) + HEAP_SLACK:
            # Pools that left stay queued until their end: what comes and goes all the time would fill the queue.
            self._expiries = [(entry.queued_ms, each) for each, entry in self._leases.items()]
            heapq.heapify(self._expiries)

    def next_expiry_ms(self) -> int | None:
        """The earliest moment (monotonic) at which a lease could end; it may turn out to have been renewed."""
        return self._expiries[0][0] + self._credit_ms if self._expiries else None
