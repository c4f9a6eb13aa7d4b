"""Limits of time by the injected clock, which `asyncio.timeout` does not know."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from poolmuster.ports.clock import Clock

T = TypeVar("T")


async def deadline(clock: Clock, deadline_ms: Callable[[], int], work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` comes to. Raises `TimeoutError` at the deadline, which ``work`` may put off, with it cancelled."""
    doing = asyncio.create_task(work)
    try:
        while not doing.done():
            left_ms = deadline_ms() - clock.monotonic_ms()
            if left_ms <= 0:
                raise TimeoutError
            due = asyncio.create_task(clock.sleep_ms(left_ms))
            try:
                await asyncio.wait((doing, due), return_when=asyncio.FIRST_COMPLETED)
            finally:
                due.cancel()
        return doing.result()
    finally:
        doing.cancel()
        # Waited for, so that no connection is still open when this is over, and no error of it is told by the loop.
        await asyncio.gather(doing, return_exceptions=True)
        # Its error leads to this frame by its traceback, and this frame to it: what was alive when the garbage
        # collector was last told to look away would stay for ever.
        del doing


async def timeout(clock: Clock, limit_ms: int, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` comes to. Raises `TimeoutError` after ``limit_ms``, with the work cancelled."""
    deadline_ms = clock.monotonic_ms() + limit_ms
    return await deadline(clock, lambda: deadline_ms, work)


async def idle_timeout(
    clock: Clock, silent_ms: int, limit_ms: int, heard_ms: Callable[[], int | None], work: Coroutine[Any, Any, T]
) -> T:
    """What ``work`` comes to. Raises `TimeoutError` once it hears nothing for ``silent_ms``, or after ``limit_ms``."""
    began_ms = clock.monotonic_ms()

    def deadline_ms() -> int:
        # What was heard before this began, of the same peer, is no sign of life of this.
        return min(max(heard_ms() or began_ms, began_ms) + silent_ms, began_ms + limit_ms)

    return await deadline(clock, deadline_ms, work)
