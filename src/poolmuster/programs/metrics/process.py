"""Metrics of the process. Their names are stable and documented in docs/operations.md."""

import asyncio
import gc
import time

from prometheus_client import CollectorRegistry, Histogram

TIMER_S = 0.05


class ProcessMetrics:
    """Pauses for garbage collection and delays of the event loop, in ``registry``. `run` measures both."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gc_pause = Histogram(
            "poolmuster_gc_pause_seconds",
            "Garbage collections, each of which stops everything",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1),
            registry=registry,
        )
        self._gc_started_s = 0.0
        self._loop_lag = Histogram(
            "poolmuster_loop_lag_seconds",
            "How late the event loop was for a timer: what every request waits besides",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0),
            registry=registry,
        )

    async def run(self) -> None:
        """Measure until cancelled. A turn of the event loop that takes long delays the timer."""
        loop = asyncio.get_running_loop()
        gc.callbacks.append(self._on_gc)
        try:
            while True:
                due_s = loop.time() + TIMER_S
                await asyncio.sleep(TIMER_S)
                self._loop_lag.observe(max(0.0, loop.time() - due_s))
        finally:
            gc.callbacks.remove(self._on_gc)

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_started_s = time.perf_counter()
        else:
            self._gc_pause.observe(time.perf_counter() - self._gc_started_s)
