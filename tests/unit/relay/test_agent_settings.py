"""What becomes of a pool whose settings change, on a clock that the test moves."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from poolmuster.relay.status import ServerState
from tests.unit.relay.world import DOWN, GOOD, POOL, World, document, running


@pytest.mark.parametrize("change", [{"weight": 5}, {"frontend_url": "http://h:2"}, {"health_path": "/healthz"}])
async def test_changed_settings_cost_a_pool_none_of_its_patience(change: dict[str, Any]) -> None:
    world = World()
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(100)
        agent.adopt(msgspec.structs.replace(POOL, **change))
        world.finding = DOWN
        await world.clock.advance(2_000)
        assert len(world.registers) == 1, "what no good probe stands behind is not registered"
        world.finding = GOOD
        await world.clock.advance(2_000)
        assert world.deregisters == []
        world.finding = DOWN
        await world.clock.advance(4_000)
        assert len(world.deregisters) == 1


async def test_failures_before_a_change_that_is_not_about_the_server_count_after_it() -> None:
    world = World()
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(100)
        world.finding = DOWN
        await world.clock.advance(2_000)
        agent.adopt(msgspec.structs.replace(POOL, weight=5))
        await world.clock.advance(2_000)
        assert len(world.deregisters) == 1


async def test_a_server_that_was_down_is_not_presumed_up_elsewhere() -> None:
    world = World()
    world.finding = DOWN
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(100)
        agent.adopt(msgspec.structs.replace(POOL, frontend_url="http://h:2"))
        assert str(agent.status.fault) == "its server has not been probed yet"
        await world.clock.advance(2_000)
        assert agent.status.server.state is ServerState.DOWN
        assert world.calls == []


async def test_what_a_file_last_held_outlives_a_change_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_text('tier="gold"')
    pool = msgspec.structs.replace(POOL, labels_file=str(path))
    world = World()
    agent = world.agent(pool)
    async with running(agent):
        await world.clock.advance(100)
        path.unlink()
        agent.adopt(msgspec.structs.replace(pool, weight=5))
        await world.clock.advance(2_000)
        assert document(world.registers[-1])["labels"] == {"tier": "gold"}
        assert document(world.registers[-1])["weight"] == 5


async def test_a_probe_that_began_before_a_change_of_the_settings_is_not_heard(tmp_path: Path) -> None:
    """A file that only the new settings name has not been read for it."""
    path = tmp_path / "labels"
    path.write_text('tier="gold"')
    world = World()
    agent = world.agent()
    async with running(agent):
        await world.clock.advance(100)
        world.answering.clear()
        await world.clock.advance(2_000)
        agent.adopt(msgspec.structs.replace(POOL, labels_file=str(path)))
        world.answering.set()
        await world.clock.advance(2_000)
        assert [document(step).get("labels") for step in world.registers] == [None, {"tier": "gold"}]
