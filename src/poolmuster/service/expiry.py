"""The timer of an instance: it ticks the lease clock, refreshes completeness and ends leases (rules L2, L5, L8)."""

import asyncio

from poolmuster.platform.lease_clock import TickingLeaseClock
from poolmuster.ports.clock import Clock
from poolmuster.service.catalog import Catalog

TICK_MS = 100
"""The longest time between two ticks; a lease that ends earlier brings the tick forward."""


class ExpiryTimer:
    """Drives the catalog by the clock, for as long as it runs."""

    def __init__(self, clock: Clock, lease_clock: TickingLeaseClock, catalog: Catalog) -> None:
        self._clock = clock
        self._lease_clock = lease_clock
        self._catalog = catalog
        self._scheduled = False
        catalog.on_overdue = self.run_soon

    def run_soon(self) -> None:
        """Tick in the next turn of the event loop."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self._scheduled = False
        self._catalog.tick(self._lease_clock.tick())

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            self._tick()
            await self._clock.sleep_ms(min(TICK_MS, max(1, self._catalog.due_ms - self._clock.monotonic_ms())))
