"""Why a pool is removed, and why pools were removed lately (rule L10)."""

from collections import OrderedDict

from poolmuster.model.change import Removal, RemovalCause
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool
from poolmuster.registry.leases import LeaseEvent

REMOVALS_LIMIT = 20_000
REMOVALS_KEPT_MS = 3_600_000


def removal_by(event: LeaseEvent[Pool] | None, at_ms: int) -> Removal:
    """The removal of a pool by the end of its lease; without ``event`` the topology no longer places it."""
    if event is None or event.cause is None:
        return Removal(cause=RemovalCause.UNLISTED, at_ms=at_ms)
    return Removal(cause=event.cause, reason=event.reason, detail=event.detail, at_ms=at_ms)


class Removals:
    """The last removal of each key that is not listed, for an hour."""

    def __init__(self) -> None:
        self._removals: OrderedDict[PoolKey, tuple[int, Removal]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._removals)

    def get(self, key: PoolKey, now_ms: int) -> Removal | None:
        """The last removal of ``key``."""
        found = self._removals.get(key)
        return None if found is None or now_ms - found[0] >= REMOVALS_KEPT_MS else found[1]

    def put(self, key: PoolKey, removal: Removal, now_ms: int) -> None:
        """``key`` was removed."""
        self._removals[key] = (now_ms, removal)
        if len(self._removals) > REMOVALS_LIMIT:
            self._removals.popitem(last=False)

    def pop(self, key: PoolKey) -> None:
        """``key`` is listed again."""
        self._removals.pop(key, None)

    def evict(self, now_ms: int) -> None:
        """Drop removals that are over an hour old."""
        while self._removals and now_ms - next(iter(self._removals.values()))[0] >= REMOVALS_KEPT_MS:
            self._removals.popitem(last=False)
