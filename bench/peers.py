"""Instances that share registrations: what they say to each other, what that costs, and how long a change is under way.

1,000 pools are renewed every five seconds, each at one of the instances; then 10% of them change each second besides.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec

from bench.load import Connection, Stream, get, post
from bench.pools import body
from bench.programs import Program, fetch, free_port, poolmuster
from bench.results import Results

POOLS = 1000
INSTANCES = (3, 5)
LEASE_S, HEARTBEAT_S = 15, 5
CHANGES_A_SECOND = POOLS // 10
MEASURED_S = 20
SETTLING_S = 3
WAYS = 200
SENT_METRIC = 'poolmuster_peer_bytes_total{direction="out"'
"""What an instance hands to its connections to peers: messages, without the heads of HTTP and TCP."""


class Spent(msgspec.Struct, frozen=True):
    """CPU time and bytes to peers, a second, of all instances together."""

    cpu_s: float
    sent_bytes: float


class Pace:
    """Requests to one instance at an even pace, over one connection. What comes late is made up for."""

    def __init__(self, program: Program, a_second: float, supply: Callable[[], bytes]) -> None:
        self._program = program
        self._every_s = 1 / a_second
        self._supply = supply

    async def run(self) -> None:
        answered = asyncio.Event()
        statuses: set[int] = set()

        def done(connection: Connection, status: int) -> None:
            statuses.add(status)
            answered.set()

        loop = asyncio.get_running_loop()
        program = self._program
        _, connection = await loop.create_connection(lambda: Connection(done), program.host, program.port)
        due_s = loop.time()
        try:
            while statuses <= {200, 201}:
                answered.clear()
                connection.send(self._supply())
                await answered.wait()
                due_s += self._every_s
                if (left_s := due_s - loop.time()) > 0:
                    await asyncio.sleep(left_s)
        finally:
            connection.close()
        raise AssertionError(f"an instance answered {statuses}")


class Pools:
    """All pools as they are now: a heartbeat sends what the last change made of its pool."""

    def __init__(self, instances: int) -> None:
        self._requests = [post(body(number)) for number in range(POOLS)]
        self._instances = instances
        self._changes = 0

    def heartbeats(self, instance: int) -> Iterator[bytes]:
        while True:
            for number in range(instance, POOLS, self._instances):
                yield self._requests[number]

    def changes(self, instance: int) -> Iterator[bytes]:
        while True:
            for number in range(instance, POOLS, self._instances):
                self._changes += 1
                self._requests[number] = post(body(number, note=f"change {self._changes}"))
                yield self._requests[number]


@contextlib.contextmanager
def instances(count: int) -> Iterator[list[Program]]:
    """So many on addresses of the loopback, each told all addresses: that takes no name server, and no root."""
    port = free_port()
    hosts = [f"127.0.0.{2 + number}" for number in range(count)]
    names = [word for host in hosts for word in ("--peer-service", f"{host}:{port}")]
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(poolmuster(*names, lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S, host=host, port=port))
            for host in hosts
        ]


@contextlib.asynccontextmanager
async def renewed(programs: list[Program], pools: Pools) -> AsyncIterator[None]:
    """Every pool's heartbeats."""
    a_second = POOLS / HEARTBEAT_S / len(programs)
    async with _paced(programs, a_second, pools.heartbeats):
        yield


@contextlib.asynccontextmanager
async def _paced(
    programs: list[Program], a_second: float, supply: Callable[[int], Iterator[bytes]]
) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(Pace(program, a_second, supply(number).__next__).run())
            for number, program in enumerate(programs)
        ]
        yield
        for task in tasks:
            task.cancel()


async def run(results: Results) -> None:
    """For each number of instances: at rest, the way of a change, and with changes."""
    for count in INSTANCES:
        pools = Pools(count)
        with instances(count) as programs:
            async with renewed(programs, pools):
                await _until_complete(programs)
                await asyncio.sleep(SETTLING_S)
                _report(results, count, "at rest", await _spent(programs))
                ways_s = await _ways_s(programs)
                name = f"{count} instances: a change at one to a watcher at another"
                results.add(f"{name}, median", statistics.median(ways_s) * 1e3, "ms", at_most=100)
                results.add(f"{name}, p99", ways_s[int(0.99 * len(ways_s))] * 1e3, "ms")
                async with _paced(programs, CHANGES_A_SECOND / count, pools.changes):
                    await asyncio.sleep(SETTLING_S)
                    _report(results, count, "10% changing", await _spent(programs))


def _report(results: Results, count: int, when: str, spent: Spent) -> None:
    name = f"{count} instances, {POOLS:,} pools, {when}"
    results.add(f"{name}: CPU of all, a second", spent.cpu_s * 1e3, "ms")
    results.add(f"{name}: bytes between them, a second", spent.sent_bytes / 1024, "KiB")


async def _until_complete(programs: list[Program]) -> None:
    while True:
        lists = [await asyncio.to_thread(fetch, f"{program.url}/pools") for program in programs]
        found = [msgspec.json.decode(each) for each in lists]
        if all(each["complete"] and len(each["pools"]) == POOLS for each in found):
            return
        await asyncio.sleep(1)


async def _spent(programs: list[Program]) -> Spent:
    async def totals() -> tuple[float, float]:
        sent_bytes = 0.0
        for program in programs:
            sent_bytes += sum((await asyncio.to_thread(program.metric, SENT_METRIC)).values())
        return sum(program.cpu_s() for program in programs), sent_bytes

    cpu_s, sent_bytes = await totals()
    started_s = time.perf_counter()
    await asyncio.sleep(MEASURED_S)
    took_s = time.perf_counter() - started_s
    cpu_after_s, sent_after_bytes = await totals()
    return Spent((cpu_after_s - cpu_s) / took_s, (sent_after_bytes - sent_bytes) / took_s)


async def _ways_s(programs: list[Program]) -> list[float]:
    """How long changes at the first instance took to a watcher of the last, sorted. Of a pool that nobody renews."""
    first, last = programs[0], programs[-1]
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    arrived_s = 0.0

    def heard(stream: Stream, data: bytes) -> None:
        nonlocal arrived_s
        if b"way " in data:
            arrived_s = time.perf_counter()
            arrived.set()

    request = get("/pools/watch?namespace=serving&dgd_name=pool-99999", "Accept: text/event-stream")
    _, stream = await loop.create_connection(lambda: Stream(request, heard), last.host, last.port)
    _, poster = await loop.create_connection(lambda: Connection(lambda *_: None), first.host, first.port)
    ways_s: list[float] = []
    try:
        await asyncio.sleep(0.5)
        for number in range(WAYS):
            arrived.clear()
            started_s = time.perf_counter()
            poster.send(post(body(99_999, note=f"way {number}")))
            async with asyncio.timeout(10):
                await arrived.wait()
            ways_s.append(arrived_s - started_s)
            await asyncio.sleep(0.037)
    finally:
        stream.abort()
        poster.close()
    return sorted(ways_s)
