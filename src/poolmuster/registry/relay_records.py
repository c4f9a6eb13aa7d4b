"""Which relay registered a key last, and which one deregistered it since.

A relay that deregistered a key is refused for an hour: a heartbeat of it that comes late must not bring the pool back.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

import msgspec

from poolmuster.model.errors import RelayDeregistered

K = TypeVar("K")

RETENTION_MS = 3_600_000
"""For how long past its lease a record is kept."""

RECORDS_LIMIT = 100_000
"""How many records are kept beside those of keys that may be live, which are kept whatever their number."""

EVICT_BATCH = 1_000


class RelayRecord(msgspec.Struct, gc=False):
    """The last event of a key was at ``at_ms``. ``left_relay_id`` is the relay that deregistered it, if one did."""

    relay_id: str | None
    left_relay_id: str | None
    at_ms: int
    departed: bool = False


def deregistered_by(relay_id: str | None) -> RelayDeregistered:
    """The error of a registration by ``relay_id``, which deregistered the key."""
    return RelayDeregistered(
        f"Relay {relay_id!r} deregistered this pool. A relay that starts again takes a new relay_id."
    )


def check_not_deregistered(relay_id: str | None, left_relay_id: str | None, left_ms: int, now_ms: int) -> None:
    """Raise `RelayDeregistered` where ``relay_id`` is the relay that deregistered the key less than an hour ago."""
    if relay_id is not None and relay_id == left_relay_id and now_ms - left_ms < RETENTION_MS:
        raise deregistered_by(relay_id)


class RelayRecords(Generic[K]):
    """Records in the order of their last event, in monotonic time. A lease is ``lease_ms``."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._pause_ended_ms: int | None = None
        self._records: OrderedDict[K, RelayRecord] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: K) -> RelayRecord | None:
        return self._records.get(key)

    def put(self, key: K, record: RelayRecord) -> None:
        self._records[key] = record

    def pop(self, key: K) -> None:
        self._records.pop(key, None)

    def register(self, key: K, relay_id: str | None, now_ms: int) -> None:
        """``relay_id`` registers or renews ``key``. Raises `RelayDeregistered`, with nothing changed."""
        record = self._records.get(key)
        if record is None:
            self._records[key] = RelayRecord(relay_id, None, now_ms)
            return
        check_not_deregistered(relay_id, record.left_relay_id, record.at_ms, now_ms)
        record.relay_id, record.left_relay_id, record.at_ms, record.departed = relay_id, None, now_ms, False
        self._records.move_to_end(key)

    def deregister(self, key: K, relay_id: str | None, now_ms: int) -> bool:
        """Record a deregistration, by an operator without ``relay_id``.

        Returns whether it acts: there is a record of the key, and no other relay was the latest.
        """
        record = self._records.get(key)
        if record is None or (relay_id is not None and relay_id != record.relay_id):
            return False
        record.left_relay_id, record.at_ms, record.departed = relay_id, now_ms, True
        self._records.move_to_end(key)
        return True

    def paused(self, ended_ms: int, length_ms: int) -> None:
        """This process was stopped: whatever was live may be live for another lease."""
        self._pause_ended_ms = ended_ms

    def _may_be_live(self, record: RelayRecord, now_ms: int) -> bool:
        renewed_ms = record.at_ms if self._pause_ended_ms is None else max(record.at_ms, self._pause_ended_ms)
        return not record.departed and now_ms - renewed_ms < self._lease_ms

    def evict(self, now_ms: int) -> None:
        """Drop records that are over, a bounded number at each call."""
        for _ in range(min(EVICT_BATCH, len(self._records))):
            key, record = next(iter(self._records.items()))
            if now_ms - record.at_ms < self._lease_ms + RETENTION_MS and len(self._records) <= RECORDS_LIMIT:
                return
            if self._may_be_live(record, now_ms):
                self._records.move_to_end(key)
            else:
                del self._records[key]
