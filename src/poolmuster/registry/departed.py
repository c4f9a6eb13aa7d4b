"""What is remembered for an hour of pools that are not live: a late heartbeat of a relay that left is refused."""

from collections import OrderedDict

import msgspec

from poolmuster.model.key import PoolKey

RETENTION_MS = 3_600_000
"""How long past its lease a key is remembered, so that a late heartbeat of a relay that left is refused."""

DEPARTED_LIMIT = 100_000
"""How many keys are remembered, those of live pools apart: they are remembered whatever their number."""

EVICT_BATCH = 1_000


class DepartedPool(msgspec.Struct, gc=False):
    """Who registered last, and who left since, by its id."""

    relay_id: str | None
    left_relay_id: str | None
    at_ms: int


class DepartedPools:
    """Records in the order of their last event. A lease is ``lease_ms``."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._pools: OrderedDict[PoolKey, DepartedPool] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pools)

    def get(self, key: PoolKey) -> DepartedPool | None:
        return self._pools.get(key)

    def put(self, key: PoolKey, record: DepartedPool) -> None:
        self._pools[key] = record

    def pop(self, key: PoolKey) -> None:
        self._pools.pop(key, None)

    def deregister(self, key: PoolKey, relay_id: str | None, now_ms: int) -> bool:
        """``relay_id`` leaves, or an operator takes the pool away. Returns whether there is a record of it."""
        record = self._pools.get(key)
        if record is None:
            return False
        if relay_id is None or relay_id == record.relay_id:
            record.left_relay_id, record.at_ms = relay_id, now_ms
            self._pools.move_to_end(key)
        return True

    def evict(self, now_ms: int) -> None:
        """Drop what is over, a bounded number a turn."""
        horizon_ms = now_ms - self._lease_ms - RETENTION_MS
        for _ in range(min(EVICT_BATCH, len(self._pools))):
            key, record = next(iter(self._pools.items()))
            if record.at_ms > horizon_ms and len(self._pools) <= DEPARTED_LIMIT:
                return
            del self._pools[key]
