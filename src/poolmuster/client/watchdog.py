"""Notices that nothing is heard any more: a connection can be dead without an error."""

import asyncio
from types import TracebackType
from typing import Self

from poolmuster.ports.clock import Clock


class WatchTimeout(Exception):
    """Nothing was heard for as long as the watchdog waits. It stays inside this package."""


class Watchdog:
    """Guards a block of code: without frequent calls of `heard` it cancels the block, which raises `WatchTimeout`."""

    def __init__(self, clock: Clock, limit_ms: int) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._heard_ms = clock.monotonic_ms()
        self._barked = False
        self._guarded: asyncio.Task[object] | None = None
        self._watching: asyncio.Task[None] | None = None

    def heard(self) -> None:
        """There was a sign of life just now."""
        self._heard_ms = self._clock.monotonic_ms()

    async def __aenter__(self) -> Self:
        self._guarded = asyncio.current_task()
        assert self._guarded is not None
        self._cancelling = self._guarded.cancelling()
        self.heard()
        self._watching = asyncio.create_task(self._watch(self._guarded))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._guarded is not None
        assert self._watching is not None
        self._watching.cancel()
        # As in asyncio.timeout: only our own cancellation becomes `WatchTimeout`, one from outside goes on.
        if self._barked and self._guarded.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise WatchTimeout from error

    async def _watch(self, guarded: asyncio.Task[object]) -> None:
        while (left_ms := self._heard_ms + self._limit_ms - self._clock.monotonic_ms()) > 0:
            await self._clock.sleep_ms(left_ms)
        self._barked = True
        guarded.cancel()
