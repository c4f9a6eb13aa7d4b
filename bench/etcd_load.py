"""Load on etcd: what a registry built on it would ask of it."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from bench import etcd_client as messages
from bench.etcd_client import Client
from bench.load import Measured
from bench.pools import body
from bench.programs import Program

PREFIX = b"/pools/"


def key(index: int) -> bytes:
    """Where a pool stands."""
    return PREFIX + b"%05d" % index


async def closed_loop(
    program: Program, ask: Callable[[Client, int], Awaitable[object]], *, count: int, clients: int
) -> Measured:
    """``count`` times ``ask``, by ``clients`` connections with one request at a time each."""
    times_s: list[float] = []

    async def work(client: Client, first: int) -> None:
        for index in range(first, count, clients):
            started_s = time.perf_counter()
            await ask(client, index)
            times_s.append(time.perf_counter() - started_s)

    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(Client(program.port)) for _ in range(clients)]
        cpu_s, started_s = program.cpu_s(), time.perf_counter()
        await asyncio.gather(*(work(client, first) for first, client in enumerate(opened)))
        return Measured(count, program.cpu_s() - cpu_s, time.perf_counter() - started_s, sorted(times_s))


async def fill(program: Program, pools: int) -> None:
    """A lease and a put for each of ``pools``."""

    async def add(client: Client, index: int) -> None:
        await client.grant(messages.grant(index + 1))
        await client.put(messages.put(key(index), body(index), index + 1))

    await closed_loop(program, add, count=pools, clients=64)


async def puts(program: Program, pools: int, count: int) -> Measured:
    """A pool's kibibyte put again under its lease."""
    bodies = [body(index) for index in range(pools)]

    async def ask(client: Client, index: int) -> None:
        pool = index % pools
        await client.put(messages.put(key(pool), bodies[pool], pool + 1))

    return await closed_loop(program, ask, count=count, clients=64)


async def keep_alives(program: Program, pools: int, count: int) -> Measured:
    """Leases renewed, each connection with one stream for all its leases."""
    streams: dict[Client, object] = {}

    async def ask(client: Client, index: int) -> None:
        stream = streams.get(client)
        if stream is None:
            stream = streams[client] = client.keep_alive()
        await stream.write(messages.keep_alive(index % pools + 1))  # type: ignore[attr-defined]  # grpc has no types
        await stream.read()  # type: ignore[attr-defined]  # as above

    return await closed_loop(program, ask, count=count, clients=64)


async def ranges(program: Program, count: int) -> Measured:
    """All pools at once."""

    async def ask(client: Client, index: int) -> None:
        await client.range(messages.prefix_range(PREFIX))

    return await closed_loop(program, ask, count=count, clients=8)
