"""A clock that moves only when a test says so."""

import asyncio
import heapq
import itertools


class ManualClock:
    """`poolmuster.ports.clock.Clock` under a test's control. ``wall_ms`` can be stepped on its own."""

    def __init__(self, monotonic_ms: int = 1_000_000, wall_ms: int = 1_800_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    async def sleep_ms(self, duration_ms: float) -> None:
        due = self._monotonic_ms + max(0, round(duration_ms))
        if due == self._monotonic_ms:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (due, next(self._order), future))
        await future

    def step_wall(self, by_ms: int) -> None:
        """Step the wall clock, as an administrator or NTP does."""
        self._wall_ms += by_ms

    def jump(self, by_ms: int) -> None:
        """Move time on at once, as for a process that was stopped: whoever sleeps wakes late."""
        self._monotonic_ms += by_ms
        self._wall_ms += by_ms

    async def advance(self, by_ms: int) -> None:
        """Move time on, waking each sleeper at its moment and letting it run."""
        end = self._monotonic_ms + by_ms
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self.jump(max(0, due - self._monotonic_ms))
            if not future.done():
                future.set_result(None)
            await self.settle()
        self.jump(end - self._monotonic_ms)
        await self.settle()

    async def settle(self, turns: int = 20) -> None:
        """Let every task that can run do so."""
        for _ in range(turns):
            await asyncio.sleep(0)
