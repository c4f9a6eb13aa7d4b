"""Applying whole updates to a lease table, as the catalog does in slices."""

from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool
from poolmuster.registry.leases import LeaseEvent, LeaseTable
from poolmuster.registry.updates import SourceUpdate

PoolLeases = LeaseTable[PoolKey, Pool]
PoolUpdate = SourceUpdate[PoolKey, Pool]


def apply(leases: PoolLeases, update: PoolUpdate) -> list[LeaseEvent[Pool]]:
    """The events of all but the ends of leases."""
    leases.credit(update.credit_ms)
    events = [leases.renew(renewal, update.started_ms) for renewal in update.renewals]
    events += map(leases.deregister, update.deregistrations)
    return [event for event in events if event is not None]
