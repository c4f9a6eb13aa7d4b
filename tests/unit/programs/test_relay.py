"""How a relay's program ends, on a clock that the test moves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from poolmuster.model.registration import RELAY_ID_LIMIT
from poolmuster.programs.relay import LEAVE_LIMIT_MS, LOOKUP_GRACE_S, new_relay_id, work
from poolmuster.relay.supervisor import AgentSupervisor
from tests.unit.relay.test_supervisor import FILE, crew_of
from tests.unit.relay.world import World

OUT_WITHIN_MS = 5_000
EXIT_MS = 200
"""For Python to end, with a busy machine in mind."""


class Pages:
    """What serves beside the relay, with clients that take ``closing_ms`` to let go."""

    tasks = ()

    def __init__(self, world: World, closing_ms: int) -> None:
        self._world = world
        self._closing_ms = closing_ms

    async def start(self) -> None:
        """It listens already."""

    async def stop(self, grace_s: float) -> None:
        await self._world.clock.sleep_ms(self._closing_ms)


@asynccontextmanager
async def working(
    world: World, supervisor: AgentSupervisor, closing_ms: int = 0
) -> AsyncIterator[tuple["asyncio.Task[None]", asyncio.Event]]:
    supervisor.check()
    stop = asyncio.Event()
    task = asyncio.create_task(work(supervisor, Pages(world, closing_ms), stop, world.clock))
    try:
        yield task, stop
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def supervisor(world: World, tmp_path: Path) -> AgentSupervisor:
    path = tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))
    return crew_of(world, path)


async def test_a_relay_is_out_in_time_though_nothing_around_it_answers(
    world: World, supervisor: AgentSupervisor
) -> None:
    """A heartbeat and a probe are in flight, and a client of its own pages does not let go."""
    async with working(world, supervisor, closing_ms=60_000) as (task, stop):
        await world.clock.advance(100)
        world.latency_ms = 60_000
        world.answering.clear()
        await world.clock.advance(6_000)
        stop.set()
        await world.clock.advance(OUT_WITHIN_MS - int(LOOKUP_GRACE_S * 1000) - EXIT_MS)
        assert task.done()
        task.result()


async def test_a_heartbeat_that_takes_all_its_time_leaves_enough_to_deregister(
    world: World, supervisor: AgentSupervisor
) -> None:
    world.latency_ms = 3_000
    async with working(world, supervisor) as (task, stop):
        await world.clock.advance(100)
        stop.set()
        await world.clock.advance(LEAVE_LIMIT_MS)
        assert task.done()
    assert len(world.deregisters) == 1


async def test_a_relay_that_is_told_to_stop_while_it_starts_is_out_at_once(
    world: World, supervisor: AgentSupervisor
) -> None:
    async with working(world, supervisor) as (task, stop):
        stop.set()
        await world.clock.settle(50)
        assert task.done()
    assert world.calls == []


def test_relay_ids_differ_and_are_short() -> None:
    ids = {new_relay_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert max(map(len, ids)) <= RELAY_ID_LIMIT // 8
