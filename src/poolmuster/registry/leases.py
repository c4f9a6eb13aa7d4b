"""The lease table: which records are live, and until when.

Rules of time that hold here, whatever the source:

- L1, L4: a record is live from its renewal until ``remaining_ms`` after the start of the update that had it;
- L5: the credit is added to every deadline before the renewals of the same update count;
- L3: a renewal with the same facts, whatever the order of models and aliases, is no event.

Credit costs nothing for each record: deadlines are kept in *lease time*, the monotonic clock less all credit so far.
The queue of expiries holds one item for each record, which is looked at again only when it is due, so a renewal does
not touch it.
"""

import heapq
from collections.abc import Callable
from typing import Any, Generic

import msgspec

from poolmuster.model.change import ChangeKind, Deregistration, DeregistrationReason, RemovalCause
from poolmuster.registry.conflicts import Conflicts, ConflictSpan
from poolmuster.registry.updates import K, R, Renewal

EXPIRY_SCAN_FACTOR = 10
"""How many items of the queue are looked at for one lease that may end."""

HEAP_SLACK = 1000
"""How many items of records that are gone may be in the queue, beside one for each live record."""


class Lease(msgspec.Struct, Generic[R], gc=False):
    """One live record. Times are lease time; ``queued_ms`` is the deadline under which it is in the queue."""

    record: R
    relay_id: str | None
    lease_ms: int
    ends_ms: int
    queued_ms: int
    renewed_ms: int
    last_relay: tuple[str, int] | None


class LeaseEvent(msgspec.Struct, Generic[R], frozen=True, gc=False, kw_only=True):
    """One change of the live records."""

    kind: ChangeKind
    before: R | None = None
    after: R | None = None
    cause: RemovalCause | None = None
    reason: DeregistrationReason | None = None
    detail: str | None = None


class LeaseTable(Generic[K, R]):
    """All live records by key. ``group_of`` gives the group under which `group_counts` counts a key."""

    def __init__(self, group_of: Callable[[K], str] = lambda _: "") -> None:
        self._leases: dict[K, Lease[R]] = {}
        self._expiries: list[tuple[int, Any]] = []
        self._credit_ms = 0
        self._longest_lease_ms = 0
        self._group_of = group_of
        self.conflicts: Conflicts[K] = Conflicts()
        self.new_conflicts: list[K] = []
        self.size_bytes = 0
        self.group_counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, key: K) -> Lease[R] | None:
        """The lease of ``key``, if it is live."""
        return self._leases.get(key)

    def lease_time_ms(self, now_ms: int) -> int:
        """Lease time at ``now_ms`` of the monotonic clock."""
        return now_ms - self._credit_ms

    def remaining_ms(self, lease: Lease[R], now_ms: int) -> int:
        """How long ``lease`` runs on without a renewal."""
        return lease.ends_ms - self.lease_time_ms(now_ms)

    def conflict(self, key: K, now_ms: int) -> ConflictSpan | None:
        """The conflict over ``key``, if there is one now (rule L9)."""
        return self.conflicts.span(key, self.lease_time_ms(now_ms))

    def evict(self, now_ms: int) -> None:
        """Drop conflicts that are over."""
        self.conflicts.evict(self.lease_time_ms(now_ms), self._longest_lease_ms)

    def credit(self, credit_ms: int) -> None:
        """Add ``credit_ms`` to every deadline."""
        self._credit_ms += credit_ms

    def renew(self, renewal: Renewal[R], started_ms: int) -> LeaseEvent[R] | None:
        """Apply a renewal that was read at ``started_ms`` of the monotonic clock."""
        record = renewal.record
        key: K = record.key
        started_ms -= self._credit_ms
        ends_ms = started_ms + renewal.remaining_ms
        lease = self._leases.get(key)
        if lease is None:
            lease = Lease(
                record, renewal.relay_id, renewal.lease_ms, ends_ms, ends_ms, started_ms, self.conflicts.latest(key)
            )
            self._record_relay(key, lease, renewal.relay_id, started_ms, renewal.lease_ms)
            self._leases[key] = lease
            self._count(key, record.size_bytes, 1)
            self._longest_lease_ms = max(self._longest_lease_ms, renewal.lease_ms)
            self._push(ends_ms, key)
            return LeaseEvent(kind=ChangeKind.ADDED, after=record)
        self._record_relay(key, lease, renewal.relay_id, started_ms, renewal.lease_ms)
        if ends_ms < lease.queued_ms:
            self._queue(key, lease, ends_ms)
        lease.lease_ms, lease.ends_ms, lease.renewed_ms = renewal.lease_ms, ends_ms, started_ms
        lease.relay_id = renewal.relay_id
        before = lease.record
        if before is record or before.body == record.body:
            return None
        lease.record = record
        self.size_bytes += record.size_bytes - before.size_bytes
        return LeaseEvent(kind=ChangeKind.CHANGED, before=before, after=record)

    def _record_relay(self, key: K, lease: Lease[R], relay_id: str | None, now_ms: int, lease_ms: int) -> None:
        if relay_id is None:
            return
        last = lease.last_relay
        if (
            last is not None
            and last[0] != relay_id
            and self.conflicts.record_switch(key, last, relay_id, now_ms, lease_ms)
        ):
            self.new_conflicts.append(key)
        lease.last_relay = (relay_id, now_ms)

    def deregister(self, deregistration: Deregistration[K]) -> LeaseEvent[R] | None:
        """End the lease of a key at once."""
        lease = self._leases.pop(deregistration.key, None)
        if lease is None:
            return None
        self._count(deregistration.key, -lease.record.size_bytes, -1)
        if lease.last_relay is not None:
            self.conflicts.record_deregistration(deregistration.key, lease.last_relay)
        return LeaseEvent(
            kind=ChangeKind.REMOVED,
            before=lease.record,
            cause=RemovalCause.DEREGISTERED,
            reason=deregistration.reason,
            detail=deregistration.detail,
        )

    def expire(self, now_ms: int, at_most: int) -> list[LeaseEvent[R]]:
        """End at most ``at_most`` of the leases that are over (rule L2); `has_expired` is true while more remain.

        An item whose lease was renewed since costs time as well, so at most ten times as many are looked at.
        """
        lease_now_ms = self.lease_time_ms(now_ms)
        events: list[LeaseEvent[R]] = []
        for _ in range(EXPIRY_SCAN_FACTOR * at_most):
            if not self.has_expired(now_ms) or len(events) == at_most:
                break
            ends_ms, key = heapq.heappop(self._expiries)
            lease = self._leases.get(key)
            if lease is None or lease.queued_ms != ends_ms:
                continue
            if lease.ends_ms > lease_now_ms:
                self._queue(key, lease, lease.ends_ms)
                continue
            del self._leases[key]
            self._count(key, -lease.record.size_bytes, -1)
            events.append(LeaseEvent(kind=ChangeKind.REMOVED, before=lease.record, cause=RemovalCause.EXPIRED))
        return events

    def has_expired(self, now_ms: int) -> bool:
        """Whether the queue has items that are due; the leases of some may have been renewed."""
        return bool(self._expiries) and self._expiries[0][0] <= self.lease_time_ms(now_ms)

    def next_expiry_ms(self) -> int | None:
        """The earliest monotonic time at which a lease could end; it may have been renewed since."""
        return self._expiries[0][0] + self._credit_ms if self._expiries else None

    def _count(self, key: K, size_bytes: int, by: int) -> None:
        self.size_bytes += size_bytes
        group = self._group_of(key)
        count = self.group_counts.get(group, 0) + by
        if count:
            self.group_counts[group] = count
        else:
            del self.group_counts[group]

    def _queue(self, key: K, lease: Lease[R], ends_ms: int) -> None:
        lease.queued_ms = ends_ms
        self._push(ends_ms, key)

    def _push(self, ends_ms: int, key: K) -> None:
        heapq.heappush(self._expiries, (ends_ms, key))
        if len(self._expiries) > 2 * len(self._leases) + HEAP_SLACK:
            # Items of records that are gone stay in the queue until they are due: records that come and go all the
            # time would fill it.
            self._expiries = [(lease.queued_ms, each) for each, lease in self._leases.items()]
            heapq.heapify(self._expiries)
