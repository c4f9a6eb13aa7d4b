"""Watchers that come and go leave nothing behind; a stopping service says so to all of them, and is out in time."""

import asyncio
import os
import signal
import subprocess

from bench.load import Stream, open_streams
from bench.programs import Program, poolmuster
from bench.results import Results

CONNECTS = int(os.environ.get("POOLMUSTER_BENCH_CONNECTS", "50000"))
AT_ONCE = 100
WATCHERS = 2000
WITHIN_S = 5


async def run(results: Results) -> None:
    """``POOLMUSTER_BENCH_CONNECTS`` is how many come and go."""
    await _come_and_go(results)
    await _stop(results)


async def _come_and_go(results: Results) -> None:
    with poolmuster() as program:
        await _connects(program, CONNECTS // 5)
        files, memory = program.open_files(), program.resident_bytes()
        await _connects(program, CONNECTS)
        grown = program.resident_bytes() - memory
        results.add(f"memory kept of {CONNECTS:,} watchers gone", grown / 2**20, "MiB", at_most=8)
        results.add("files left open by them", program.open_files() - files, "", at_most=0)


async def _connects(program: Program, count: int) -> None:
    for _ in range(count // AT_ONCE):
        streams = await open_streams(program, ["/pools/watch"] * AT_ONCE, lambda *_: None, at_once=AT_ONCE)
        for stream in streams:
            stream.abort()
    await asyncio.sleep(1)


async def _stop(results: Results) -> None:
    told: set[Stream] = set()

    def heard(stream: Stream, data: bytes) -> None:
        if b'"closing"' in stream.tail:
            told.add(stream)

    with poolmuster() as program:
        streams = await open_streams(program, ["/pools/watch"] * WATCHERS, heard)
        program.send_signal(signal.SIGTERM)
        try:
            took_s = await asyncio.to_thread(program.wait_s, WITHIN_S * 2)
        except subprocess.TimeoutExpired:
            took_s = WITHIN_S * 2
        async with asyncio.timeout(1):
            await asyncio.gather(*(stream.ended.wait() for stream in streams))
    results.add("stop with 2,000 watchers", took_s, "s", at_most=WITHIN_S)
    results.add("watchers told of it", len(told), "", at_least=WATCHERS)
