"""The clock of this machine: the one port whose real side needs nothing but the standard library."""

import asyncio
import time


class SystemClock:
    """This machine's clocks (`poolmuster.ports.clock.Clock`). Its times may be read in any thread."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_ms(self, duration_ms: float) -> None:
        await asyncio.sleep(max(0.0, duration_ms) / 1000)
