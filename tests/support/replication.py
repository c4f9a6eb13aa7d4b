"""Deltas and snapshots in one piece; the service sends them piece by piece."""

from poolmuster.replication.log import ReplicationLog
from poolmuster.replication.messages import Deregistered, Entry, Registered
from poolmuster.replication.replica import Replica


def delta_entries(log: ReplicationLog, after: int, now_ms: int) -> tuple[Entry, ...]:
    """The events after ``after`` that still matter, in order."""
    messages = (entry.message(after, now_ms) for _, entry in log.after(after))
    return tuple(message for message in messages if message is not None)


def snapshot_entries(replica: Replica, now_ms: int) -> tuple[Registered | Deregistered, ...]:
    """All that the replica knows."""
    return tuple(entry for pool in replica.items() for entry in replica.snapshot_entries(pool, now_ms))
