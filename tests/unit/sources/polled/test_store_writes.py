"""What the polled store writes, on which condition, and what a refusal means."""

import msgspec
import pytest

from poolmuster.model.errors import RelayDeregistered, Unavailable
from poolmuster.model.source import SourceReason
from poolmuster.sources.polled.store import DEREGISTER_TRIES, PUT_LIMIT_S
from poolmuster.sources.polled.table import Condition, NotLeft, SameEnd, SameRelay
from tests.support.clock import ManualClock
from tests.support.registrations import deregistration, registration
from tests.unit.sources.polled.worlds import LEASE_MS, World, failure


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock)


async def test_a_put_is_conditional_on_the_relay_not_having_left(world: World) -> None:
    await world.store.put(registration("a", "r"))
    item, condition, limit_s = world.table.puts[0]
    assert item.writer == "home/boot"
    assert item.ends_ms == world.clock.wall_ms() + LEASE_MS
    assert condition == NotLeft("r", world.clock.wall_ms() // 1000)
    assert limit_s == PUT_LIMIT_S
    await world.store.put(registration("a"))
    assert world.table.puts[1][1] is None


async def test_a_refused_put_and_one_that_may_have_worked_are_told_apart(world: World) -> None:
    world.table.refuse = lambda condition: True
    with pytest.raises(RelayDeregistered):
        await world.store.put(registration("a", "r"))
    world.table.put_error = failure(SourceReason.THROTTLED)
    with pytest.raises(Unavailable, match="throttled"):
        await world.store.put(registration("a", "r"))
    world.table.put_error = OSError("gone")
    with pytest.raises(Unavailable, match="unreachable"):
        await world.store.put(registration("a", "r"))
    world.table.put_error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await world.store.put(registration("a", "r"))
    assert world.recorder.writes == ["refused", "throttled", "unreachable", "cancelled"]


async def test_of_an_unknown_key_nothing_is_written(world: World) -> None:
    await world.store.deregister(deregistration("a", "r"))
    await world.store.deregister(deregistration("a"))
    assert world.table.puts == []


async def test_a_relay_leaves_on_condition_that_it_is_the_latest(world: World) -> None:
    world.has()
    await world.store.deregister(deregistration("a", "r"))
    item, condition, _ = world.table.puts[0]
    assert item.ends_ms == 0
    assert condition == SameRelay("r")
    await world.store.deregister(deregistration("a", "r"))
    await world.store.deregister(deregistration("a", "another"))
    assert len(world.table.puts) == 1


async def test_a_relay_overtaken_by_its_successor_while_it_leaves_has_left(world: World) -> None:
    world.has()
    world.table.refuse = lambda condition: True
    await world.store.deregister(deregistration("a", "r"))
    assert len(world.table.puts) == 1


async def test_an_operator_overtaken_by_a_heartbeat_tries_again_a_few_times(world: World) -> None:
    world.has()
    world.table.refuse = lambda condition: len(world.table.puts) < DEREGISTER_TRIES
    await world.store.deregister(deregistration("a"))
    assert world.table.items["c#n#a"].ends_ms == 0
    world.has()
    world.table.refuse = lambda condition: True
    with pytest.raises(Unavailable):
        await world.store.deregister(deregistration("a"))


async def test_an_operator_can_deregister_an_item_without_an_end(world: World) -> None:
    world.has()
    item = world.table.items["c#n#a"] = msgspec.structs.replace(world.table.items["c#n#a"], ends_ms=None)
    await world.store.deregister(deregistration("a"))
    assert world.table.puts[0][1] == SameEnd(item)
    assert world.table.items["c#n#a"].ends_ms == 0


async def test_deregistering_has_a_second_and_a_half_in_all(world: World) -> None:
    world.has()

    def slow(condition: Condition | None) -> bool:
        world.clock.jump(800)
        return True

    world.table.refuse = slow
    with pytest.raises(Unavailable, match="within 1"):
        await world.store.deregister(deregistration("a"))
    assert world.table.get_limits == [PUT_LIMIT_S, pytest.approx(0.7)]
