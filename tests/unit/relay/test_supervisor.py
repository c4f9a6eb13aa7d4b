"""The crew of a pools file, on a clock that the test moves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey
from poolmuster.relay.agent import Agent
from poolmuster.relay.heartbeat import (
    Deregister,
)
from poolmuster.relay.settings import OnExit, PoolDefaults, PoolSettings, ProbeSettings, RelaySettings
from poolmuster.relay.status import RelayPoolStatus
from poolmuster.relay.supervisor import AgentSupervisor
from tests.unit.relay.world import DOWN, URLS, World, document

FILE = '[[pools]]\nname = "{}"\nfrontend = "{}"\n'


def crew_of(world: World, path: Path) -> AgentSupervisor:
    settings = RelaySettings(
        discovery=URLS,
        pool=None,
        pools_file=str(path),
        defaults=PoolDefaults(cluster_id="c", namespace="ns"),
        probe=ProbeSettings(),
        on_exit=OnExit.DEREGISTER,
    )
    return AgentSupervisor(settings, agent=world.agent, clock=world.clock, rng=lambda: 0.5)


@asynccontextmanager
async def working(supervisor: AgentSupervisor) -> AsyncIterator["asyncio.Task[None]"]:
    supervisor.check()
    task = asyncio.create_task(supervisor.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(statuses: tuple[RelayPoolStatus, ...]) -> list[str]:
    return [status.key for status in statuses]


async def test_pools_come_and_go_with_the_file(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1") + FILE.format("b", "http://b:1"))
    supervisor = crew_of(world, path)
    async with working(supervisor):
        await world.clock.advance(100)
        assert names(supervisor.statuses) == ["c/ns/a", "c/ns/b"]
        path.write_text(FILE.format("b", "http://b:1") + FILE.format("d", "http://d:1"))
        await world.clock.advance(2_100)
        assert names(supervisor.statuses) == ["c/ns/b", "c/ns/d"]
        assert [key for _, step, key in world.calls if isinstance(step, Deregister)] == [PoolKey("c", "ns", "a")]
        assert len(world.registers) == 3


async def test_a_pool_whose_settings_change_is_never_off_the_list(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))
    supervisor = crew_of(world, path)
    async with working(supervisor):
        await world.clock.advance(100)
        world.findings["http://a:2"] = DOWN
        path.write_text(FILE.format("a", "http://a:2"))
        await world.clock.advance(2_000)
        assert supervisor.statuses[0].server.failed_probes == 1
        del world.findings["http://a:2"]
        await world.clock.advance(2_000)
        assert world.deregisters == []
        assert document(world.registers[-1])["frontend_url"] == "http://a:2"
        assert {step.relay_id for step in world.registers} == {"id-0"}


async def test_what_is_taken_otherwise_than_it_is_written_is_said_once(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1/v1"))
    supervisor = crew_of(world, path)
    with capture_logs() as said:
        async with working(supervisor):
            await world.clock.advance(100)
            path.write_text(FILE.format("a", "http://a:1/v1") + FILE.format("b", "http://b:1/v1"))
            await world.clock.advance(10_000)
    remarks = [entry["warning"] for entry in said if "warning" in entry]
    assert remarks == [
        f"the /v1 at the end of frontend of {name} is taken off: http://{name}:1 is used" for name in ("a", "b")
    ]


async def test_a_file_that_goes_bad_leaves_the_pools_as_they_are(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))
    supervisor = crew_of(world, path)
    async with working(supervisor):
        await world.clock.advance(100)
        path.write_text("nonsense")
        await world.clock.advance(2_100)
        assert names(supervisor.statuses) == ["c/ns/a"]
        assert "TOML" in str(supervisor.file_problem)
        path.write_text("")
        await world.clock.advance(2_100)
        assert names(supervisor.statuses) == []
        assert len(world.deregisters) == 1


async def test_a_file_that_is_bad_at_the_start_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        crew_of(World(), tmp_path / "none").check()


async def test_a_crew_that_stops_deregisters_every_pool_and_ends(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text("".join(FILE.format(f"p{number}", "http://a:1") for number in range(20)))
    supervisor = crew_of(world, path)
    async with working(supervisor) as task:
        await world.clock.advance(3_000)
        assert len(world.registers) == 20
        supervisor.stop()
        await world.clock.settle(50)
        assert task.done()
    assert len(world.deregisters) == 20


async def test_a_crew_that_is_stopped_before_it_began_registers_nothing_and_ends(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))
    supervisor = crew_of(world, path)
    async with working(supervisor) as task:
        supervisor.stop()
        await world.clock.advance(10_000)
        assert task.done()
    assert world.calls == []


async def test_an_agent_that_dies_ends_the_crew(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))

    def broken(settings: PoolSettings) -> Agent:
        agent = world.agent(settings)
        agent._prober = None  # type: ignore[assignment]  # a bug, for the test
        return agent

    supervisor = crew_of(world, path)
    supervisor._new_agent = broken
    task = asyncio.create_task(_run(supervisor))
    await world.clock.advance(100)
    assert task.done()
    assert isinstance(task.exception(), AttributeError)


async def _run(supervisor: AgentSupervisor) -> None:
    supervisor.check()
    await supervisor.run()
