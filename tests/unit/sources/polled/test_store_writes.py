"""What the store writes, on which condition, and what it makes of a refusal."""

from typing import Any

import pytest

from poolmuster.model.errors import RelayDeregistered, Unavailable
from poolmuster.model.source import SourceReason
from tests.support.clock import ManualClock
from tests.support.registrations import deregistration, registration

pytest.importorskip("botocore", reason="botocore is not here: it comes with the extra 'dynamodb'")


from poolmuster.sources.dynamodb.store import LEAVE_TRIES, PUT_LIMIT_S
from tests.unit.sources.dynamodb.worlds import LEASE_MS, World, trouble


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock)


# What it writes.


async def test_a_put_is_conditional_on_the_relay_not_having_left(world: World) -> None:
    await world.store.put(registration("a", "r"))
    item, condition, limit_s = world.calls.puts[0]
    assert item["writer"] == {"S": "home/boot"}
    assert item["lease_ends_ms"] == {"N": str(world.clock.wall_ms() + LEASE_MS)}
    assert condition is not None
    assert condition["ExpressionAttributeValues"][":relay"] == {"S": "r"}
    assert limit_s == PUT_LIMIT_S
    await world.store.put(registration("a"))
    assert world.calls.puts[1][1] is None


async def test_a_refused_put_and_one_that_may_have_worked_are_told_apart(world: World) -> None:
    world.calls.refuse = lambda condition: True
    with pytest.raises(RelayDeregistered):
        await world.store.put(registration("a", "r"))
    world.calls.put_trouble = trouble(SourceReason.THROTTLED)
    with pytest.raises(Unavailable, match="throttled"):
        await world.store.put(registration("a", "r"))


async def test_of_an_unknown_key_nothing_is_written(world: World) -> None:
    await world.store.deregister(deregistration("a", "r"))
    await world.store.deregister(deregistration("a"))
    assert world.calls.puts == []


async def test_a_relay_leaves_on_condition_that_it_is_the_latest(world: World) -> None:
    world.has()
    await world.store.deregister(deregistration("a", "r"))
    item, condition, _ = world.calls.puts[0]
    assert item["lease_ends_ms"] == {"N": "0"}
    assert condition == {
        "ConditionExpression": "relay_id = :relay",
        "ExpressionAttributeValues": {":relay": {"S": "r"}},
    }
    await world.store.deregister(deregistration("a", "r"))
    await world.store.deregister(deregistration("a", "somebody"))
    assert len(world.calls.puts) == 1


async def test_a_relay_overtaken_by_its_successor_while_it_leaves_has_left(world: World) -> None:
    world.has()
    world.calls.refuse = lambda condition: True
    await world.store.deregister(deregistration("a", "r"))
    assert len(world.calls.puts) == 1


async def test_an_operator_overtaken_by_a_heartbeat_tries_again_a_few_times(world: World) -> None:
    world.has()
    world.calls.refuse = lambda condition: len(world.calls.puts) < LEAVE_TRIES
    await world.store.deregister(deregistration("a"))
    assert world.calls.items["c#n#a"]["lease_ends_ms"] == {"N": "0"}
    world.has()
    world.calls.refuse = lambda condition: True
    with pytest.raises(Unavailable):
        await world.store.deregister(deregistration("a"))


async def test_an_operator_can_take_away_an_item_without_an_end(world: World) -> None:
    world.has()
    del world.calls.items["c#n#a"]["lease_ends_ms"]
    await world.store.deregister(deregistration("a"))
    assert world.calls.puts[0][1] == {"ConditionExpression": "attribute_not_exists(lease_ends_ms)"}


async def test_leaving_has_a_second_and_a_half_in_all(world: World) -> None:
    world.has()

    def slow(condition: dict[str, Any] | None) -> bool:
        world.clock.jump(800)
        return True

    world.calls.refuse = slow
    with pytest.raises(Unavailable, match="within 1"):
        await world.store.deregister(deregistration("a"))
    assert world.calls.single_limits == [PUT_LIMIT_S, pytest.approx(0.7)]
