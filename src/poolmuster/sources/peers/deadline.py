"""A time limit on the injected clock, which `asyncio.timeout` does not know."""

import asyncio
from types import TracebackType
from typing import Self

from poolmuster.ports.clock import Clock


class Deadline:
    """Guards one block, which raises `TimeoutError` ``limit_ms`` after its start, unless `extend` moves that."""

    def __init__(self, clock: Clock, limit_ms: int) -> None:
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + limit_ms
        self.extended = False
        self._block: asyncio.Task[object] | None = None
        self._error: type[Exception] | None = None

    def extend(self, limit_ms: int) -> None:
        """Move the end to ``limit_ms`` from now."""
        self.extended = True
        self._ends_ms = self._clock.monotonic_ms() + limit_ms

    def end(self, error: type[Exception]) -> None:
        """End the block now; it raises ``error``."""
        if self._block is not None and self._error is None:
            self._error = error
            self._block.cancel()

    async def __aenter__(self) -> Self:
        self._block = asyncio.current_task()
        assert self._block is not None
        self._cancelling = self._block.cancelling()
        self._timer = asyncio.create_task(self._run_timer())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        assert self._block is not None
        # As in `asyncio.timeout`: a cancellation from outside goes on, one by `end` becomes its error.
        is_own = self._error is not None and self._block.uncancel() <= self._cancelling
        # The errors of the tasks lead to this object by their tracebacks: together they would be cycles.
        self._block = None
        del self._timer
        if is_own and self._error is not None and kind is asyncio.CancelledError:
            raise self._error from error

    async def _run_timer(self) -> None:
        while (left_ms := self._ends_ms - self._clock.monotonic_ms()) > 0:
            await self._clock.sleep_ms(left_ms)
        self.end(TimeoutError)
