"""One pool's agent, and the crew of a pools file, on a clock that the test moves."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from poolmuster.model.address import Address
from poolmuster.model.change import LeaveReason
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey
from poolmuster.relay.agent import Agent
from poolmuster.relay.crew import Crew
from poolmuster.relay.heartbeat import (
    Deregister,
    Failed,
    Left,
    Outcome,
    Phase,
    Refused,
    Register,
    Renewed,
    Superseded,
    Terms,
)
from poolmuster.relay.probe import ProbeAccess, Prober
from poolmuster.relay.settings import OnExit, PoolDefaults, PoolSettings, ProbeSettings, RelaySettings
from poolmuster.relay.status import PoolStatus, ServerState
from poolmuster.relay.verdict import Finding, ServedModel, Serving, Unfit
from tests.support.clock import ManualClock

KEY = PoolKey("c", "ns", "n")
POOL = PoolSettings(key=KEY, frontend_url="http://h:1", advertise_url="http://h:1")
GOOD = Serving((ServedModel("m"),))
DOWN = Unfit(LeaveReason.FRONTEND_UNHEALTHY, "/health answered 500")
EMPTY = Unfit(LeaveReason.NO_MODELS, "/v1/models lists none")
URLS = ("http://a", "http://b")


class FakeProber(Prober):
    """Finds what the test says, by the root that is asked."""

    def __init__(self, world: "World") -> None:
        self._world = world

    async def probe(self, access: ProbeAccess, timeout_s: float) -> Finding:
        self._world.probes += 1
        return self._world.findings.get(access.root, self._world.finding)


class World:
    """A server, discovery, and the clock of both."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.finding: Finding = GOOD
        self.findings: dict[str, Finding] = {}
        self.outcome: Outcome = Renewed(Terms())
        self.latency_ms = 0
        self.probes = 0
        self.calls: list[tuple[int, Register | Deregister, PoolKey | None]] = []
        self.ids = itertools.count()

    async def register(self, step: Register) -> Outcome:
        self.calls.append((self.clock.monotonic_ms(), step, None))
        if self.latency_ms:
            await self.clock.sleep_ms(self.latency_ms)
        return self.outcome

    async def deregister(self, key: PoolKey, step: Deregister) -> Outcome:
        self.calls.append((self.clock.monotonic_ms(), step, key))
        return Left() if isinstance(self.outcome, Renewed) else self.outcome

    def agent(self, settings: PoolSettings = POOL) -> Agent:
        return Agent(
            settings,
            urls=URLS,
            discovery=self,
            prober=FakeProber(self),
            probing=ProbeSettings(),
            clock=self.clock,
            new_id=lambda: f"id-{next(self.ids)}",
            draw=lambda: 0.5,
        )

    @property
    def registers(self) -> list[Register]:
        return [step for _, step, _ in self.calls if isinstance(step, Register)]

    @property
    def deregisters(self) -> list[Deregister]:
        return [step for _, step, _ in self.calls if isinstance(step, Deregister)]


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(agent.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def document(step: Register) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(step.facts)
    return found


async def test_a_pool_is_registered_after_the_first_good_probe_and_renewed() -> None:
    world = World()
    agent = world.agent()
    async with running(agent):
        assert str(agent.status.fault) == "its server has not been probed yet"
        await world.clock.advance(16_000)
        assert len(world.registers) == 4
        assert {step.relay_id for step in world.registers} == {"id-0"}
        assert agent.status.phase is Phase.REGISTERED
        assert agent.status.fault is None
        assert agent.counts.heartbeats == {"renewed": 4}


async def test_nothing_is_registered_while_the_server_is_down() -> None:
    world = World()
    world.finding = EMPTY
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(10_000)
        assert world.calls == []
        assert agent.status.server.state is ServerState.DOWN
        assert agent.status.fault is None, "a pool whose server is down is as it should be"
        world.finding = GOOD
        await world.clock.advance(2_500)
        assert len(world.registers) == 1


@pytest.mark.parametrize("finding", [DOWN, EMPTY])
async def test_two_failed_probes_deregister_with_the_reason_and_a_good_one_brings_the_pool_back(finding: Unfit) -> None:
    world = World()
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(1_000)
        world.finding = finding
        await world.clock.advance(2_000)
        assert world.deregisters == []
        await world.clock.advance(2_000)
        (left,) = world.deregisters
        assert (left.departing.reason, left.departing.detail, left.relay_id) == (finding.reason, finding.detail, "id-0")
        assert agent.counts.deregistrations == {finding.reason.value: 1}
        await world.clock.advance(20_000)
        assert len(world.deregisters) == 1
        world.finding = GOOD
        await world.clock.advance(2_000)
        assert world.registers[-1].relay_id == "id-1"


async def test_a_change_of_the_models_is_sent_with_the_next_probe() -> None:
    world = World()
    async with running(world.agent()):
        await world.clock.advance(100)
        world.finding = Serving((ServedModel("m"), ServedModel("n", 5)))
        await world.clock.advance(2_000)
        assert [model["id"] for model in document(world.registers[-1])["models"]] == ["m", "n"]
        assert len(world.registers) == 2


async def test_labels_of_the_file_are_sent_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_text('tier="gold"')
    world = World()
    agent = world.agent(PoolSettings(key=KEY, frontend_url="http://h", advertise_url="http://h", labels_file=str(path)))
    async with running(agent):
        await world.clock.advance(100)
        assert document(world.registers[-1])["labels"] == {"tier": "gold"}
        path.write_text('tier="iron"')
        await world.clock.advance(2_000)
        assert document(world.registers[-1])["labels"] == {"tier": "iron"}
        path.unlink()
        await world.clock.advance(2_000)
        assert document(world.registers[-1])["labels"] == {"tier": "iron"}
        assert len(agent.status.file_problems) == 1


async def test_it_goes_on_through_any_outage_of_discovery() -> None:
    world = World()
    world.outcome = Failed("cannot be reached")
    agent = world.agent()
    async with running(agent) as task:
        await world.clock.advance(3_600_000)
        assert not task.done()
        assert {step.url for step in world.registers} == {0, 1}
        assert str(agent.status.fault) == "it is not listed: cannot be reached"
        world.outcome = Renewed(Terms(), created=True)
        await world.clock.advance(5_000)
        assert agent.status.fault is None
        assert agent.counts.leases_lost == 0


async def test_a_refusal_shows_in_its_health_and_is_tried_again_at_every_heartbeat() -> None:
    world = World()
    world.outcome = Refused(403, "not your cluster")
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(20_500)
        assert len(world.registers) == 5
        assert agent.status.fault == "discovery refuses it: 403: not your cluster"


async def test_409_is_answered_with_a_new_relay_id_at_once() -> None:
    world = World()
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(100)
        world.outcome = Superseded("left")
        await world.clock.advance(5_000)
        assert [step.relay_id for step in world.registers] == ["id-0", "id-0", "id-1"]


async def test_a_lease_lost_is_told_from_an_outage() -> None:
    world = World()
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(100)
        assert agent.counts.heartbeats == {"renewed": 1}
        world.outcome = Renewed(Terms(), created=True)
        await world.clock.advance(5_000)
        assert agent.counts.leases_lost == 1
        world.outcome = Failed("outage")
        await world.clock.advance(7_000)
        world.outcome = Renewed(Terms())
        await world.clock.advance(5_000)
        assert agent.counts.leases_lost == 1, "the outage was shorter than the lease"


async def test_stopping_deregisters_and_ends() -> None:
    world = World()
    agent = world.agent()
    async with running(agent) as task:
        await world.clock.advance(100)
        agent.stop(OnExit.DEREGISTER)
        await world.clock.settle()
        assert task.done()
    (left,) = world.deregisters
    assert left.departing.reason is LeaveReason.RELAY_STOPPING


async def test_stopping_lets_the_heartbeat_in_flight_end_first() -> None:
    world = World()
    world.latency_ms = 1_000
    agent = world.agent()
    async with running(agent) as task:
        await world.clock.advance(100)
        agent.stop(OnExit.DEREGISTER)
        await world.clock.advance(500)
        assert world.deregisters == []
        await world.clock.advance(500)
        assert task.done()
    assert len(world.deregisters) == 1


async def test_stopping_leaves_the_pool_to_another_relay_that_registers_it_too() -> None:
    world = World()
    world.outcome = Renewed(Terms(), conflict=True)
    agent = world.agent()
    async with running(agent) as task:
        await world.clock.advance(100)
        assert agent.status.discovery.conflict
        agent.stop(OnExit.DEREGISTER)
        await world.clock.settle()
        assert task.done()
    assert world.deregisters == []


async def test_a_conflict_seen_by_the_heartbeat_in_flight_counts_too() -> None:
    world = World()
    world.latency_ms = 1_000
    world.outcome = Renewed(Terms(), conflict=True)
    agent = world.agent()
    async with running(agent) as task:
        await world.clock.advance(100)
        agent.stop(OnExit.DEREGISTER)
        await world.clock.advance(1_000)
        assert task.done()
    assert world.deregisters == []


async def test_leaving_says_nothing() -> None:
    world = World()
    agent = world.agent()
    async with running(agent) as task:
        await world.clock.advance(100)
        agent.stop(OnExit.LEAVE)
        await world.clock.settle()
        assert task.done()
    assert world.deregisters == []


async def test_a_server_that_is_down_in_a_conflict_is_deregistered_all_the_same() -> None:
    world = World()
    world.outcome = Renewed(Terms(), conflict=True)
    async with running(world.agent()):
        await world.clock.advance(100)
        world.finding = DOWN
        await world.clock.advance(5_000)
        assert len(world.deregisters) == 1


async def test_a_pause_of_the_process_is_followed_by_a_heartbeat_at_once() -> None:
    world = World()
    async with running(world.agent()):
        await world.clock.advance(100)
        world.clock.jump(60_000)
        await world.clock.advance(0)
        assert len(world.registers) == 2


async def test_steps_of_the_wall_clock_change_nothing() -> None:
    world = World()
    async with running(world.agent()):
        await world.clock.advance(100)
        for step_ms in (3_600_000, -7_200_000):
            world.clock.step_wall(step_ms)
            await world.clock.advance(5_000)
        assert len(world.registers) == 3


FILE = '[[pools]]\nname = "{}"\nfrontend = "{}"\n'


def crew_of(world: World, path: Path) -> Crew:
    settings = RelaySettings(
        discovery=URLS,
        pool=None,
        pools_file=str(path),
        defaults=PoolDefaults(cluster_id="c", namespace="ns"),
        probe=ProbeSettings(),
        on_exit=OnExit.DEREGISTER,
        listen=Address("127.0.0.1", 0),
    )
    return Crew(settings, agent=world.agent, clock=world.clock, draw=lambda: 0.5)


@asynccontextmanager
async def working(crew: Crew) -> AsyncIterator["asyncio.Task[None]"]:
    crew.check()
    task = asyncio.create_task(crew.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(statuses: tuple[PoolStatus, ...]) -> list[str]:
    return [status.key for status in statuses]


async def test_pools_come_and_go_with_the_file(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1") + FILE.format("b", "http://b:1"))
    crew = crew_of(world, path)
    async with working(crew):
        await world.clock.advance(100)
        assert names(crew.statuses) == ["c/ns/a", "c/ns/b"]
        path.write_text(FILE.format("b", "http://b:1") + FILE.format("d", "http://d:1"))
        await world.clock.advance(2_100)
        assert names(crew.statuses) == ["c/ns/b", "c/ns/d"]
        assert [key for _, step, key in world.calls if isinstance(step, Deregister)] == [PoolKey("c", "ns", "a")]
        assert len(world.registers) == 3


async def test_a_pool_whose_settings_change_is_never_off_the_list(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))
    crew = crew_of(world, path)
    async with working(crew):
        await world.clock.advance(100)
        path.write_text(FILE.format("a", "http://a:2"))
        await world.clock.advance(4_100)
        assert world.deregisters == []
        assert document(world.registers[-1])["frontend_url"] == "http://a:2"
        assert {step.relay_id for step in world.registers} == {"id-0"}


async def test_a_file_that_goes_bad_leaves_the_pools_as_they_are(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))
    crew = crew_of(world, path)
    async with working(crew):
        await world.clock.advance(100)
        path.write_text("nonsense")
        await world.clock.advance(2_100)
        assert names(crew.statuses) == ["c/ns/a"]
        assert "TOML" in str(crew.file_problem)
        path.write_text("")
        await world.clock.advance(2_100)
        assert names(crew.statuses) == []
        assert len(world.deregisters) == 1


async def test_a_file_that_is_bad_at_the_start_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        crew_of(World(), tmp_path / "none").check()


async def test_a_crew_that_stops_deregisters_every_pool_and_ends(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text("".join(FILE.format(f"p{number}", "http://a:1") for number in range(20)))
    crew = crew_of(world, path)
    async with working(crew) as task:
        await world.clock.advance(3_000)
        assert len(world.registers) == 20
        crew.stop()
        await world.clock.settle(50)
        assert task.done()
    assert len(world.deregisters) == 20


async def test_an_agent_that_dies_ends_the_crew(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))

    def broken(settings: PoolSettings) -> Agent:
        agent = world.agent(settings)
        agent._prober = None  # type: ignore[assignment]  # a bug, for the test
        return agent

    crew = crew_of(world, path)
    crew._new_agent = broken
    task = asyncio.create_task(_run(crew))
    await world.clock.advance(100)
    assert task.done()
    assert isinstance(task.exception(), AttributeError)


async def _run(crew: Crew) -> None:
    crew.check()
    await crew.run()
