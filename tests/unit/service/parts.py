"""The parts of one instance without its edges."""

from poolmuster.service.registrar import Registrar, RegistrarLimits
from poolmuster.service.views import Views
from poolmuster.sources.memory import MemoryStore
from tests.support.catalog import POLICY, CatalogWorld
from tests.support.clock import ManualClock

LEASE_MS = POLICY.duration_ms
LIMITS = RegistrarLimits(pools=1000, pools_per_cluster=500, registrations_bytes=1 << 20)


class Parts(CatalogWorld[MemoryStore]):
    """Store, catalog, registrar and views on a clock of the test's. The store sends without being run."""

    clock: ManualClock

    def __init__(self, limits: RegistrarLimits = LIMITS, history_changes: int = 1000) -> None:
        super().__init__(ManualClock(), MemoryStore, history_changes=history_changes)
        self.store._sink = self.sink
        self.registrar = Registrar(
            clock=self.clock, store=self.store, catalog=self.catalog, limits=limits, policy=POLICY
        )
        self.views = Views(self.catalog.pools, self.change_log)

    async def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, with store and timer at work."""
        self.start()
        await self.clock.advance(duration_ms)
        await self.stop()
