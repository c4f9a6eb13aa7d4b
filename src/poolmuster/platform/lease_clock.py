"""The clocks of this machine, and the lease clock, which leaves out the pauses of this process (rule L5)."""

import asyncio
import time
from collections.abc import Callable

PAUSE_MS = 1_000
"""The shortest pause."""


class SystemClock:
    """This machine's clocks (`poolmuster.ports.clock.Clock`). Its times may be read in any thread."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_ms(self, duration_ms: float) -> None:
        await asyncio.sleep(max(0.0, duration_ms) / 1000)


class TickingLeaseClock:
    """`poolmuster.ports.clock.LeaseClock` on the clock that ``monotonic_ms`` reads. The expiry timer ticks it."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._subscribers: list[Callable[[int, int], None]] = []
        self.credit_ms = 0
        self.ticked_ms = monotonic_ms()

    def subscribe(self, on_pause: Callable[[int, int], None]) -> None:
        self._subscribers.append(on_pause)

    def tick(self) -> int:
        """Tick: announce a pause where there was one. Returns the monotonic time."""
        now_ms = self._monotonic_ms()
        gap_ms, self.ticked_ms = now_ms - self.ticked_ms, now_ms
        if gap_ms > PAUSE_MS:
            self.credit_ms += gap_ms
            for on_pause in self._subscribers:
                on_pause(now_ms, gap_ms)
        return now_ms

    def notice_pause(self) -> int:
        now_ms = self._monotonic_ms()
        return self.tick() if now_ms - self.ticked_ms > PAUSE_MS else now_ms
