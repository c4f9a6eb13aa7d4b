"""The clock of a client that is used on its own: the event loop's."""

import asyncio
import time


class LoopClock:
    """`poolmuster.ports.clock.Clock` by the running event loop."""

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_ms(self, duration_ms: float) -> None:
        await asyncio.sleep(max(0.0, duration_ms) / 1000)
