"""The parts of one instance without its edges."""

import asyncio

from poolmuster.model.change import Change
from poolmuster.model.key import PoolKey
from poolmuster.registry.change_log import ChangeLog
from poolmuster.service.catalog import Catalog, Hooks
from poolmuster.service.registrar import Registrar, RegistrarLimits
from poolmuster.service.views import Views
from poolmuster.sources.memory import MemoryStore
from tests.support.clock import ManualClock

LEASE_MS = 15_000
LIMITS = RegistrarLimits(pools=1000, pools_per_cluster=500, registrations_bytes=1 << 20)


class Parts:
    """Store, projection, registrar and views on a clock of the test's."""

    def __init__(self, limits: RegistrarLimits = LIMITS, history_changes: int = 1000) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, LEASE_MS, 5000)
        self.change_log = ChangeLog(history_changes, 1 << 20, self.clock.monotonic_ms())
        self.changes: list[Change] = []
        self.conflicts: list[tuple[PoolKey, tuple[str, ...]]] = []
        self.woken = 0
        self.catalog = Catalog(
            boot_id="boot",
            clock=self.clock,
            store=self.store,
            change_log=self.change_log,
            wake=self._wake,
            hooks=Hooks(self.changes.append, lambda *told: self.conflicts.append(told)),
        )
        self.registrar = Registrar(
            clock=self.clock,
            store=self.store,
            catalog=self.catalog,
            limits=limits,
            lease_ms=LEASE_MS,
            heartbeat_interval_ms=5000,
        )
        self.views = Views(self.catalog.pools, self.change_log)

    async def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, with the store's timer at work."""
        running = asyncio.create_task(self.store.run())
        await self.clock.advance(duration_ms)
        running.cancel()

    def _wake(self) -> None:
        self.woken += 1
