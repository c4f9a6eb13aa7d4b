"""How a relay's program ends, on a clock that the test moves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from poolmuster.model.registration import RELAY_ID_LIMIT
from poolmuster.programs.relay import LEAVE_LIMIT_MS, new_relay_id, stop_steps
from poolmuster.programs.supervisor import WORKER_GRACE_S, Supervisor
from poolmuster.relay.supervisor import AgentSupervisor
from tests.unit.relay.test_supervisor import FILE, crew_of
from tests.unit.relay.world import World

OUT_WITHIN_MS = 5_000
EXIT_MS = 200
"""For Python to end, with a busy machine in mind."""


@asynccontextmanager
async def working(
    world: World, agents: AgentSupervisor, closing_ms: int = 0
) -> AsyncIterator[tuple["asyncio.Task[None]", Supervisor]]:
    """The agents under a supervisor, beside a listener whose clients take ``closing_ms`` to disconnect."""

    async def start() -> None:
        """It listens already."""

    async def stop_listener() -> None:
        await world.clock.sleep_ms(closing_ms)

    agents.check()
    supervisor = Supervisor("relay", world.clock)
    steps = stop_steps(supervisor, agents, stop_listener)
    task = asyncio.create_task(supervisor.supervise([agents.run], start=start, stop_steps=steps))
    try:
        yield task, supervisor
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def agents(world: World, tmp_path: Path) -> AgentSupervisor:
    path = tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))
    return crew_of(world, path)


async def test_a_relay_is_out_in_time_though_nothing_around_it_answers(world: World, agents: AgentSupervisor) -> None:
    """A heartbeat and a probe are in flight, and a client of its own pages does not let go."""
    async with working(world, agents, closing_ms=60_000) as (task, supervisor):
        await world.clock.advance(100)
        world.latency_ms = 60_000
        world.answering.clear()
        await world.clock.advance(6_000)
        supervisor.stop()
        await world.clock.advance(OUT_WITHIN_MS - int(WORKER_GRACE_S * 1000) - EXIT_MS)
        assert task.done()
        task.result()


async def test_a_heartbeat_that_takes_all_its_time_leaves_enough_to_deregister(
    world: World, agents: AgentSupervisor
) -> None:
    world.latency_ms = 3_000
    async with working(world, agents) as (task, supervisor):
        await world.clock.advance(100)
        supervisor.stop()
        await world.clock.advance(LEAVE_LIMIT_MS)
        assert task.done()
    assert len(world.deregisters) == 1


async def test_a_relay_that_is_told_to_stop_while_it_starts_is_out_at_once(
    world: World, agents: AgentSupervisor
) -> None:
    async with working(world, agents) as (task, supervisor):
        supervisor.stop()
        await world.clock.settle(50)
        assert task.done()
    assert world.calls == []


def test_relay_ids_differ_and_are_short() -> None:
    ids = {new_relay_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert max(map(len, ids)) <= RELAY_ID_LIMIT // 8
