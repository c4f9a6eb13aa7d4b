"""Items of a table, and a reader on two clocks that agree, for the tests of `poolmuster.registry.table_scan`."""

from poolmuster.model.change import DeregistrationReason, RemovalCause
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool
from poolmuster.registry.leases import LeaseTable
from poolmuster.registry.table_scan import ScanDiff, TableItem
from tests.support.leases import PoolLeases, PoolUpdate, apply
from tests.support.registrations import key, pool

PoolItem = TableItem[PoolKey, Pool]

LEASE_MS = 15_000
HEARTBEAT_MS = 5_000
SECOND_MS = 1_000
HOUR_MS = 3_600_000
T0_MS = 1_000_000
WALL_MS = 1_800_000_000_000


def item(name: str = "a", ends_in_ms: int = 0, *, region: str | None = None, lease_ms: int | None = None) -> PoolItem:
    """An item whose stored end lies ``ends_in_ms`` after `WALL_MS`."""
    return TableItem(
        key=key(name),
        record=pool(name),
        relay_id="r",
        ends_ms=WALL_MS + ends_in_ms,
        lease_ms=lease_ms,
        region=region,
    )


def left(
    name: str = "a", reason: DeregistrationReason | None = DeregistrationReason.OPERATOR, region: str | None = None
) -> PoolItem:
    return TableItem(
        key=key(name),
        record=pool(name),
        relay_id="r",
        ends_ms=0,
        left_reason=reason,
        left_detail="gone",
        left_relay_id="r",
        region=region,
    )


class Reads:
    """A reader and the time, which is the same on both clocks: ``at_ms`` counts from the first read."""

    def __init__(self, own_region: str | None = "home", lease_ms: int = LEASE_MS) -> None:
        self.reader: ScanDiff[PoolKey, Pool] = ScanDiff(lease_ms, own_region)

    def read(self, at_ms: int, *items: PoolItem) -> PoolUpdate:
        return self.reader.apply_scan(items, T0_MS + at_ms, WALL_MS + at_ms)

    def silent(self, at_ms: int) -> dict[str, int]:
        return self.reader.stalled_regions(T0_MS + at_ms)


def renewed(update: PoolUpdate) -> dict[str, int]:
    """Each renewal's remaining time, by name."""
    return {each.record.key.dgd_name: each.remaining_ms for each in update.renewals}


class Listed:
    """A reader with the roster that it feeds, in the order that L5 gives."""

    def __init__(self) -> None:
        self.reader: ScanDiff[PoolKey, Pool] = ScanDiff(LEASE_MS, "home")
        self.leases: PoolLeases = LeaseTable()
        self.removed: list[tuple[int, str, RemovalCause | None]] = []

    def read(self, at_ms: int, table_ms: int, items: list[PoolItem]) -> None:
        update = self.reader.apply_scan(items, at_ms, table_ms)
        steps = apply(self.leases, update) + self.leases.expire(update.started_ms, 1_000)
        self.removed += [(at_ms, s.before.key.dgd_name, s.cause) for s in steps if s.before is not None and not s.after]

    def lists(self, name: str = "a") -> bool:
        return self.leases.get(key(name)) is not None
