"""A catalog with one store, its lease clock and its timer, on a clock that the test moves."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from poolmuster.model.change import PoolChange
from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Pool
from poolmuster.platform.lease_clock import TickingLeaseClock
from poolmuster.ports.clock import Clock, LeaseClock
from poolmuster.ports.store import RegistrationStore
from poolmuster.registry.change_log import ChangeLog
from poolmuster.service.catalog import Catalog
from poolmuster.service.expiry import ExpiryTimer

POLICY = LeasePolicy(15_000, 5_000)

S = TypeVar("S", bound=RegistrationStore)


class RecordingLog(ChangeLog[Pool]):
    """Keeps every change in a list as well."""

    def __init__(self, limit_changes: int, now_ms: int, changes: list[PoolChange]) -> None:
        super().__init__(limit_changes, 1 << 20, now_ms)
        self._all = changes

    def append(self, change: PoolChange) -> None:
        super().append(change)
        self._all.append(change)


class RecordingCatalog(Catalog):
    """Keeps every conflict that it reports in a list as well."""

    def __init__(self, conflicts: list[tuple[PoolKey, tuple[str, ...]]], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._reported = conflicts

    def _report_conflicts(self) -> None:
        for key in self.leases.new_conflicts:
            span = self.leases.conflict(key, self._clock.monotonic_ms())
            self._reported.append((key, span.relay_ids if span else ()))
        super()._report_conflicts()


class CatalogWorld(Generic[S]):
    """Everything between a store and the list. Use as ``async with``, or by hand without its tasks."""

    def __init__(
        self,
        clock: Clock,
        make_store: Callable[[Clock, LeaseClock, LeasePolicy], S],
        *,
        boot_id: str = "boot",
        history_changes: int = 1000,
        has_topology: bool = False,
    ) -> None:
        self.clock = clock
        self.lease_clock = TickingLeaseClock(clock.monotonic_ms)
        self.store = make_store(clock, self.lease_clock, POLICY)
        self.changes: list[PoolChange] = []
        self.conflicts: list[tuple[PoolKey, tuple[str, ...]]] = []
        self.woken = 0
        self.change_log = RecordingLog(history_changes, clock.monotonic_ms(), self.changes)
        self.catalog = RecordingCatalog(
            self.conflicts,
            boot_id=boot_id,
            clock=clock,
            lease_clock=self.lease_clock,
            expiry=self.store.expiry,
            change_log=self.change_log,
            wake=self._wake,
            has_topology=has_topology,
        )
        self.timer = ExpiryTimer(clock, self.lease_clock, self.catalog)
        self.sink = self.catalog.attach(self.store)
        self.tasks: list[asyncio.Task[None]] = []

    def _wake(self) -> None:
        self.woken += 1

    def start(self) -> None:
        """Run the store and the timer."""
        self.tasks = [asyncio.create_task(self.store.run(self.sink)), asyncio.create_task(self.timer.run())]

    async def stop(self) -> None:
        """End both."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def tick(self) -> None:
        """What the timer does, now."""
        self.catalog.tick(self.lease_clock.tick())

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def listed(self) -> list[str]:
        """The names of the listed pools."""
        return [pool.key.dgd_name for pool in self.catalog.pools]
