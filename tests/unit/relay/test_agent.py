"""One pool's agent, on a clock that the test moves."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from poolmuster.model.change import DeregistrationReason
from poolmuster.relay.agent import Agent
from poolmuster.relay.heartbeat import (
    HeartbeatAccepted,
    HeartbeatFailed,
    HeartbeatRefused,
    Outcome,
    Phase,
    Superseded,
    Terms,
)
from poolmuster.relay.probe import Healthy, ServedModel, Unhealthy
from poolmuster.relay.settings import OnExit, PoolSettings
from poolmuster.relay.status import ServerState
from tests.support.parts import ROOT
from tests.unit.relay.world import DOWN, EMPTY, GOOD, KEY, World, document, running


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
async def test_two_failed_probes_deregister_with_the_reason_and_a_good_one_brings_the_pool_back(
    finding: Unhealthy,
) -> None:
    world = World()
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(1_000)
        world.finding = finding
        await world.clock.advance(2_000)
        assert world.deregisters == []
        await world.clock.advance(2_000)
        (left,) = world.deregisters
        assert (left.request.reason, left.request.detail, left.relay_id) == (finding.reason, finding.detail, "id-0")
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
        world.finding = Healthy((ServedModel("m"), ServedModel("n", 5)))
        await world.clock.advance(2_000)
        assert [model["id"] for model in document(world.registers[-1])["models"]] == ["m", "n"]
        assert len(world.registers) == 2


async def test_models_that_are_left_out_are_said_once_and_shown() -> None:
    world = World()
    world.finding = Healthy((ServedModel("m"),), left_out=3)
    agent = world.agent()
    with capture_logs() as said:
        async with running(agent):
            await world.clock.advance(10_000)
            assert agent.status.server.models_left_out == 3
    assert [entry["left_out"] for entry in said if "left_out" in entry] == [3]


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
    world.outcome = HeartbeatFailed("cannot be reached")
    agent = world.agent()
    async with running(agent) as task:
        await world.clock.advance(3_600_000)
        assert not task.done()
        assert {step.url for step in world.registers} == {0, 1}
        assert str(agent.status.fault) == "it is not listed: cannot be reached"
        world.outcome = HeartbeatAccepted(Terms(), created=True)
        await world.clock.advance(5_000)
        assert agent.status.fault is None
        assert agent.counts.leases_lost == 0


async def test_a_refusal_shows_in_its_health_and_is_tried_again_at_every_heartbeat() -> None:
    world = World()
    world.outcome = HeartbeatRefused(403, "not your cluster")
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(20_500)
        assert len(world.registers) == 5
        assert agent.status.fault == "discovery refuses it: 403: not your cluster"


@pytest.mark.parametrize("was_listed", [False, True])
async def test_a_refused_pool_whose_server_goes_down_is_as_it_should_be(was_listed: bool) -> None:
    world = World()
    world.outcome = HeartbeatAccepted(Terms()) if was_listed else HeartbeatRefused(403, "not your cluster")
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(100)
        world.outcome = HeartbeatRefused(403, "not your cluster")
        await world.clock.advance(5_000)
        assert str(agent.status.fault).startswith("discovery refuses it")
        world.finding = DOWN
        await world.clock.advance(4_000)
        assert agent.status.server.state is ServerState.DOWN
        assert str(agent.status.fault) == "None"
        await world.clock.advance(15_000)
        assert (agent.status.discovery.refused, agent.status.discovery.problem) == (False, None)
        world.finding = GOOD
        await world.clock.advance(2_000)
        assert str(agent.status.fault).startswith("discovery refuses it"), "and is refused anew when it is back"


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (HeartbeatAccepted(Terms(), created=True), "registered"),
        (HeartbeatAccepted(Terms()), "renewed"),
        (HeartbeatFailed("outage"), "failed"),
        (HeartbeatRefused(403, "not your cluster"), "refused"),
        (Superseded("left"), "superseded"),
    ],
)
async def test_heartbeats_are_counted_by_the_documented_outcomes(outcome: Outcome, name: str) -> None:
    world = World()
    world.outcome = outcome
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(100)
    assert set(agent.counts.heartbeats) == {name}
    assert f"`{name}`" in (ROOT / "docs" / "relay.md").read_text()


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
        world.outcome = HeartbeatAccepted(Terms(), created=True)
        await world.clock.advance(5_000)
        assert agent.counts.leases_lost == 1
        world.outcome = HeartbeatFailed("outage")
        await world.clock.advance(7_000)
        world.outcome = HeartbeatAccepted(Terms())
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
    assert left.request.reason is DeregistrationReason.RELAY_STOPPING


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


async def probe_that_ends_in_the_turn_of_the_stop(world: World, agent: Agent, on_exit: OnExit) -> None:
    """Stop ``agent`` when the answer of its server has been read, and nobody has looked at it yet."""
    world.answering.clear()
    await world.clock.advance(2_500)
    world.answering.set()
    agent.stop(on_exit)
    await world.clock.settle()


async def test_a_good_probe_that_ends_in_the_turn_of_the_stop_does_not_take_it_back() -> None:
    world = World()
    agent = world.agent()
    async with running(agent) as task:
        await world.clock.advance(100)
        await probe_that_ends_in_the_turn_of_the_stop(world, agent, OnExit.DEREGISTER)
        assert task.done()
    assert [step.relay_id for step in world.registers] == ["id-0"]
    (left,) = world.deregisters
    assert left.request.reason is DeregistrationReason.RELAY_STOPPING


async def test_a_failed_probe_that_ends_in_the_turn_of_the_stop_deregisters_nothing_that_is_to_be_left() -> None:
    world = World()
    agent = world.agent()
    async with running(agent) as task:
        await world.clock.advance(100)
        world.finding = DOWN
        await world.clock.advance(2_000)
        await probe_that_ends_in_the_turn_of_the_stop(world, agent, OnExit.LEAVE)
        assert task.done()
    assert world.deregisters == []


async def test_stopping_leaves_the_pool_to_another_relay_that_registers_it_too() -> None:
    world = World()
    world.outcome = HeartbeatAccepted(Terms(), conflict=True)
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
    world.outcome = HeartbeatAccepted(Terms(), conflict=True)
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
    world.outcome = HeartbeatAccepted(Terms(), conflict=True)
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
