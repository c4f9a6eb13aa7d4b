"""The real clock, for a client that is used on its own."""

import asyncio
import time


class MachineClock:
    """`poolmuster.ports.clock.Clock` of this machine; its times may be read in any thread."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_ms(self, duration_ms: float) -> None:
        await asyncio.sleep(max(0.0, duration_ms) / 1000)
