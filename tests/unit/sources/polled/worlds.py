"""A polled store on a clock of the test's and on a table that follows a script."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Pool
from poolmuster.model.source import SourceReason
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.updates import SourceUpdate
from poolmuster.sources.polled.instrumentation import TableInstrumentation
from poolmuster.sources.polled.items import live_item
from poolmuster.sources.polled.server_clock import ServerClock
from poolmuster.sources.polled.store import PolledStore
from poolmuster.sources.polled.table import POOL, Condition, StoredItem, StoreError, Table
from tests.support.clock import ManualClock
from tests.support.registrations import registration

LEASE_MS = 15_000


class ScriptedTable:
    """Answers from a script; each scan may take time on the test's clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.name, self.location = "t", "Table t (home)"
        self.region: str | None = "home"
        self._clock = clock
        self.server_clock = ServerClock()
        self.items: dict[str, StoredItem] = {}
        self.scans: list[tuple[int, int, int]] = []
        """Of each scan: when it began, how many were under way, and when it must have ended."""
        self.takes_ms = 0
        self.errors: list[Exception | None] = []
        self.put_error: Exception | None = None
        self.refuse: Callable[[Condition | None], bool] = lambda condition: False
        self.puts: list[tuple[StoredItem, Condition | None, float]] = []
        self.get_limits: list[float] = []
        self.is_open = False
        self._under_way = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False

    async def scan(self, partitions: Sequence[str], ends_ms: int) -> AsyncGenerator[Iterable[StoredItem], None]:
        assert partitions == (POOL,)
        self._under_way += 1
        try:
            self.scans.append((self._clock.monotonic_ms(), self._under_way, ends_ms))
            error = self.errors.pop(0) if self.errors else None
            if self.takes_ms:
                await self._clock.sleep_ms(self.takes_ms)
            yield list(self.items.values())
            if error is not None:
                raise error
        finally:
            self._under_way -= 1

    async def get(self, key: PoolKey, timeout_s: float) -> StoredItem | None:
        self.get_limits.append(timeout_s)
        return self.items.get(key.storage_key)

    async def put(self, item: StoredItem, condition: Condition | None, timeout_s: float) -> bool:
        self.puts.append((item, condition, timeout_s))
        if self.put_error is not None:
            raise self.put_error
        if self.refuse(condition):
            return False
        self.items[item.key] = item
        return True

    def classify(self, error: Exception) -> StoreError | None:
        return StoreError(SourceReason.UNREACHABLE, str(error)) if isinstance(error, OSError) else None


class Recorder(TableInstrumentation):
    """Records what the store reports."""

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.extra = 0
        self.retries = 0

    def read(self, outcome: str, duration_ms: int) -> None:
        self.reads.append(outcome)

    def wrote(self, outcome: str, duration_ms: int) -> None:
        self.writes.append(outcome)

    def retried(self, reason: str) -> None:
        self.retries += 1

    def extra_read(self) -> None:
        self.extra += 1


class StoreWorld:
    """The store on ``table``, and all that it sends (`poolmuster.ports.source.Sink`)."""

    def __init__(self, clock: ManualClock, table: Table, recorder: Recorder) -> None:
        self.clock = clock
        self.updates: list[SourceUpdate[PoolKey, Pool]] = []
        self.failures = 0
        self.recorder = recorder
        self.store = PolledStore(
            table=table, clock=clock, boot_id="boot", policy=LeasePolicy(LEASE_MS, 5_000), instrumentation=recorder
        )

    async def apply(self, update: SourceUpdate[PoolKey, Pool]) -> None:
        self.updates.append(update)

    def statuses_changed(self) -> None:
        self.failures += 1

    async def read_once(self) -> None:
        await self.store.read_once(self)

    @property
    def renewed(self) -> set[PoolKey]:
        """The keys of all renewals so far."""
        return {each.record.key for update in self.updates for each in update.renewals}

    @property
    def source(self) -> SourceStatus:
        return self.store.statuses(self.clock.monotonic_ms())[0]

    def foreign(self, name: str = "a", **facts: Any) -> StoredItem:
        """A live item as another instance puts it."""
        ends_ms = self.clock.wall_ms() + LEASE_MS
        return live_item(registration(name, "r", **facts), ends_ms=ends_ms, lease_ms=LEASE_MS, writer="home/other")


class World(StoreWorld):
    """The store on a `ScriptedTable`."""

    def __init__(self, clock: ManualClock) -> None:
        self.table = ScriptedTable(clock)
        super().__init__(clock, self.table, Recorder())

    @property
    def starts_ms(self) -> list[int]:
        return [started_ms for started_ms, _, _ in self.table.scans]

    def has(self, name: str = "a", **facts: Any) -> None:
        """Put a live item into the table, as another instance does."""
        item = self.foreign(name, **facts)
        self.table.items[item.key] = item


def failure(reason: SourceReason = SourceReason.UNREACHABLE) -> StoreError:
    """An error of a table."""
    return StoreError(reason, f"it is {reason}")
