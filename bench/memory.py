"""What a pool and a watcher cost in memory."""

import asyncio

from bench.heartbeats import register
from bench.load import open_streams
from bench.programs import poolmuster
from bench.results import Results

POOLS = 10_000
WATCHERS = 2000


async def run(results: Results) -> None:
    """Resident memory before and after."""
    with poolmuster() as program:
        await register(program, 100)
        before = program.resident_bytes()
        await register(program, 100 + POOLS)
        results.add("memory a pool of 1 KiB", (program.resident_bytes() - before) / POOLS / 1024, "KiB")
    with poolmuster() as program:
        await open_streams(program, ["/pools/watch"] * 100, lambda *_: None)
        before = program.resident_bytes()
        await open_streams(program, ["/pools/watch"] * WATCHERS, lambda *_: None)
        await asyncio.sleep(0.2)
        results.add("memory a watcher", (program.resident_bytes() - before) / WATCHERS / 1024, "KiB")
