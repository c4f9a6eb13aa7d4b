"""The table store: what it costs in units and in time, and how soon one instance shows what another took."""

import asyncio
import math
import random
import re
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.load import Connection, Stream, open_streams, post
from bench.observing import longest_turn
from bench.pools import body
from bench.programs import Program
from bench.results import Results
from bench.table_servers import by_heart, dynalite, item_bytes, service
from poolmuster.model.registration import parse_registration
from poolmuster.sources.dynamodb.items import attributes_of
from poolmuster.sources.polled.items import live_item

HEARTBEAT_S = 5
UNITS_POOLS = (100, 1000)
UNITS_S = 20
REFRESH_POOLS = (100, 1000, 10_000)
REFRESH_S = 20
TURN_POOLS, TURN_MS = 1000, 20
WATCHED_POOLS = 100
CHANGES = 400
CHANGES_A_SECOND = 20
SHOWS_WITHIN_MS = 1200
MILLISECONDS = 13 * "1"
NOTE = re.compile(rb'"note":"change (\d+)"')


async def run(results: Results) -> None:
    for pools in UNITS_POOLS:
        await _units(results, pools)
    for pools in REFRESH_POOLS:
        await _refresh(results, pools)
    await _other_instance(results)


# Units


async def _units(results: Results, pools: int) -> None:
    with dynalite() as table, service(table) as program:
        async with _renewing(program, pools):
            await asyncio.sleep(3 * HEARTBEAT_S)
            before, failed, started_s = program.metric(_UNITS), _failed(program), time.monotonic()
            await asyncio.sleep(UNITS_S)
            after, took_s = program.metric(_UNITS), time.monotonic() - started_s
            failed = _failed(program) - failed
    item = live_item(parse_registration(body(0)), ends_ms=int(MILLISECONDS), lease_ms=15_000, writer="-/0123456789ab")
    size = item_bytes(attributes_of(item))
    by_arithmetic = {"read": math.ceil(pools * size / 4096), "write": pools / HEARTBEAT_S * math.ceil(size / 1024)}
    for kind, expected in by_arithmetic.items():
        name = f'{{kind="{kind}"}}'
        results.add(f"{kind} units a second, {pools:,} pools", (after[name] - before[name]) / took_s, "")
        results.add(f"{kind} units a second, {pools:,} pools of {size} bytes, by arithmetic", expected, "")
    results.add(f"calls that failed meanwhile, {pools:,} pools", failed, "")


_UNITS = "poolmuster_table_consumed_units_total"
_CALLS = ("poolmuster_table_reads_total", "poolmuster_table_writes_total")
_GOOD = '{outcome="good"}'


def _good_reads(program: Program) -> float:
    return program.metric(_CALLS[0])[_GOOD]


def _failed(program: Program) -> float:
    calls = [program.metric(name) for name in _CALLS]
    return sum(sum(found.values()) - found[_GOOD] for found in calls)


@asynccontextmanager
async def _renewing(program: Program, pools: int) -> AsyncIterator[None]:
    """So many pools, each renewed every five seconds, at an even pace."""
    requests = [post(body(number)) for number in range(pools)]
    tasks = [asyncio.create_task(_renew(program, requests[start::10])) for start in range(10)]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _renew(program: Program, requests: list[bytes]) -> None:
    answered = asyncio.Event()
    statuses: set[int] = set()

    def done(_: Connection, status: int) -> None:
        statuses.add(status)
        answered.set()

    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(done), "127.0.0.1", program.port
    )
    due_s, number = time.monotonic(), 0
    while True:
        answered.clear()
        connection.send(requests[number % len(requests)])
        await answered.wait()
        # A dynalite that is read and written by turns is slow to take so many new pools; relays try again, too.
        assert statuses <= {200, 201, 503}, f"the service answered {statuses}"
        number += 1
        # What was late is not caught up with: the pace stays even.
        due_s = max(due_s + HEARTBEAT_S / len(requests), time.monotonic())
        await asyncio.sleep(due_s - time.monotonic())


# One refresh


async def _refresh(results: Results, pools: int) -> None:
    limits = ("--limit-pools", "20000")
    with by_heart(pools) as table:
        with service(table, *limits) as program:
            await _until_read(program, 2)
            cpu_s, reads = program.cpu_s(), _good_reads(program)
            await asyncio.sleep(REFRESH_S)
            cpu_s, reads = program.cpu_s() - cpu_s, _good_reads(program) - reads
            assert sum(program.metric("poolmuster_pools{").values()) == pools
        with service(table, *limits, observed=True) as program:
            await _until_read(program, 1)
            first = await longest_turn(program)
            await asyncio.sleep(REFRESH_S)
            turns = await longest_turn(program)
    at_most = TURN_MS if pools <= TURN_POOLS else None
    results.add(f"refresh of {pools:,} pools, CPU", cpu_s / reads * 1e3, "ms")
    results.add(
        f"refresh of {pools:,} pools, longest turn, running", turns.longest_running_s * 1e3, "ms", at_most=at_most
    )
    results.add(f"refresh of {pools:,} pools, longest turn, by the clock", turns.longest_s * 1e3, "ms")
    results.add(f"start and first read of {pools:,} pools, longest turn, running", first.longest_running_s * 1e3, "ms")


async def _until_read(program: Program, times: int) -> None:
    while _good_reads(program) < times:
        await asyncio.sleep(0.1)


# What one took, at another


async def _other_instance(results: Results) -> None:
    sent_s: dict[int, float] = {}
    took_s: dict[int, float] = {}
    rest = b""

    def heard(stream: Stream, data: bytes) -> None:
        nonlocal rest
        now_s = time.perf_counter()
        whole, _, rest = (rest + data).rpartition(b"\n")
        for found in NOTE.findall(whole):
            if (change := int(found)) in sent_s:
                took_s.setdefault(change, now_s - sent_s[change])

    with dynalite() as table, service(table) as taker, service(table) as other:
        async with _renewing(taker, WATCHED_POOLS):
            await _until_read(other, 1)
            await asyncio.sleep(2)
            await open_streams(other, ["/pools/watch"], heard)
            _, poster = await asyncio.get_running_loop().create_connection(
                lambda: Connection(lambda *_: None), "127.0.0.1", taker.port
            )
            for change in range(CHANGES):
                # A pool of its own each: the next read shows every change.
                content = body(WATCHED_POOLS + change, note=f"change {change}")
                sent_s[change] = time.perf_counter()
                poster.send(post(content))
                await asyncio.sleep(random.expovariate(CHANGES_A_SECOND))
            async with asyncio.timeout(10):
                while len(took_s) < CHANGES:
                    await asyncio.sleep(0.1)
    times_ms = sorted(each * 1e3 for each in took_s.values())
    results.add("a registration at one instance to a watcher at another, median", statistics.median(times_ms), "ms")
    p99_ms = times_ms[int(0.99 * len(times_ms))]
    results.add("a registration at one instance to a watcher at another, p99", p99_ms, "ms", at_most=SHOWS_WITHIN_MS)
