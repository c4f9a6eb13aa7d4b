"""Metrics of the process, measured by the task that a program gives its supervisor."""

import asyncio
import contextlib
import gc

from prometheus_client import CollectorRegistry

from poolmuster.programs.metrics.process import ProcessMetrics


async def test_garbage_collections_are_measured_while_the_task_runs() -> None:
    registry, before = CollectorRegistry(), list(gc.callbacks)
    measuring = asyncio.create_task(ProcessMetrics(registry).run())
    await asyncio.sleep(0)
    gc.collect()
    measuring.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await measuring
    assert (registry.get_sample_value("poolmuster_gc_pause_seconds_count") or 0) >= 1
    assert gc.callbacks == before
