"""A sink whose updates can be held up."""

import asyncio
from typing import Any

from poolmuster.ports.source import Sink
from poolmuster.registry.updates import SourceUpdate


class SlowSink:
    """Passes updates to ``sink`` one after the other, each whole, also where the task that sent it is cancelled.

    That is what `poolmuster.ports.source.Sink` requires. While it is held, `apply` does not return.
    """

    def __init__(self, sink: Sink | None = None) -> None:
        self._sink = sink
        self._lock = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self.error: Exception | None = None
        self.applied: list[SourceUpdate[Any, Any]] = []
        self.status_changes = 0

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def apply(self, update: SourceUpdate[Any, Any]) -> None:
        await asyncio.shield(asyncio.create_task(self._apply(update)))

    async def _apply(self, update: SourceUpdate[Any, Any]) -> None:
        async with self._lock:
            await self._open.wait()
            if self.error is not None:
                raise self.error
            if self._sink is not None:
                await self._sink.apply(update)
            self.applied.append(update)

    def statuses_changed(self) -> None:
        self.status_changes += 1
        if self._sink is not None:
            self._sink.statuses_changed()
