"""One change to 2,000 watchers: half see everything, half look through 50 different filters that let it pass."""

import asyncio
import statistics
import time

from bench import etcd_client as messages
from bench.etcd_client import Client
from bench.etcd_load import PREFIX, fill, key
from bench.heartbeats import register
from bench.load import Connection, Stream, open_streams, post
from bench.observing import longest_turn
from bench.pools import body
from bench.programs import Program, etcd, poolmuster
from bench.results import Results

WATCHERS = 2000
FILTERS = 50
POOLS = 100
CHANGES = 20
WITHIN_S = 10
ETCD_CONNECTIONS = 20


def targets() -> list[str]:
    """The watches."""
    half = WATCHERS // 2
    filtered = [f"/pools/watch?label=f{number % FILTERS}%3Dyes" for number in range(half)]
    return ["/pools/watch"] * half + filtered


class Arrivals:
    """When the latest change came to each watcher."""

    def __init__(self) -> None:
        self._count = 0
        self._last_s = 0.0
        self._all = asyncio.Event()

    def heard(self, stream: Stream, data: bytes) -> None:
        if b'"type":"changed"' in data:
            self.one()

    def one(self) -> None:
        self._count += 1
        if self._count == WATCHERS:
            self._last_s = time.perf_counter()
            self._all.set()

    async def last_s(self) -> float:
        """When the last came. Raises `TimeoutError`."""
        async with asyncio.timeout(WITHIN_S):
            await self._all.wait()
        self._count = 0
        self._all.clear()
        return self._last_s


def changed_body(change: int) -> bytes:
    """A pool that all the filters match, as it is after so many changes."""
    return body(0, note=f"change {change}", labels={f"f{number}": "yes" for number in range(FILTERS)})


async def run(results: Results) -> None:
    with poolmuster() as program:
        times_s, cpu_s = await _changes(program)
    results.add("one change to all of 2,000 watchers, median", statistics.median(times_s) * 1e3, "ms", at_most=100)
    results.add("one change to all of 2,000 watchers, slowest", max(times_s) * 1e3, "ms", at_most=100)
    results.add("one change to 2,000 watchers, server CPU", cpu_s * 1e3, "ms")
    with poolmuster(observed=True) as program:
        await _changes(program)
        turns = await longest_turn(program)
    results.add("longest turn in fan-out, running", turns.longest_running_s * 1e3, "ms", at_most=20)
    results.add("longest turn in fan-out, by the clock", turns.longest_s * 1e3, "ms")
    times_s, cpu_s = await _etcd_changes()
    results.add("etcd: one change to 2,000 watchers, median", statistics.median(times_s) * 1e3, "ms")
    results.add("etcd: one change to 2,000 watchers, server CPU", cpu_s * 1e3, "ms")


async def _changes(program: Program) -> tuple[list[float], float]:
    await register(program, POOLS)
    arrivals = Arrivals()
    streams: list[Stream] = []
    _, poster = await asyncio.get_running_loop().create_connection(
        lambda: Connection(lambda *_: None), "127.0.0.1", program.port
    )
    poster.send(post(changed_body(-1)))
    await asyncio.sleep(0.2)
    streams += await open_streams(program, targets(), arrivals.heard)
    await asyncio.sleep(0.5)
    await longest_turn(program)
    times_s: list[float] = []
    cpu_s = program.cpu_s()
    for change in range(CHANGES):
        started_s = time.perf_counter()
        poster.send(post(changed_body(change)))
        times_s.append(await arrivals.last_s() - started_s)
        await asyncio.sleep(0.05)
    cpu_s = (program.cpu_s() - cpu_s) / CHANGES
    for stream in streams:
        stream.abort()
    return times_s, cpu_s


async def _etcd_changes() -> tuple[list[float], float]:
    with etcd() as program:
        await fill(program, POOLS)
        arrivals = Arrivals()
        created = asyncio.Semaphore(0)

        async def watch(client: Client) -> None:
            stream = client.watch()
            await stream.write(messages.watch_prefix(PREFIX))
            await stream.read()
            created.release()
            while True:
                await stream.read()
                arrivals.one()

        clients = [await Client(program.port).__aenter__() for _ in range(ETCD_CONNECTIONS)]
        watches = [asyncio.create_task(watch(clients[number % ETCD_CONNECTIONS])) for number in range(WATCHERS)]
        for _ in range(WATCHERS):
            await created.acquire()
        times_s: list[float] = []
        cpu_s = program.cpu_s()
        for change in range(CHANGES):
            started_s = time.perf_counter()
            await clients[0].put(messages.put(key(0), body(0, note=f"change {change}"), 1))
            times_s.append(await arrivals.last_s() - started_s)
        cpu_s = (program.cpu_s() - cpu_s) / CHANGES
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        for client in clients:
            await client.channel.close()
        return times_s, cpu_s
