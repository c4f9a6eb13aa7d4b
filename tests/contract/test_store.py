"""What every registration store does: registering, renewing, leaving."""

import pytest

from poolmuster.model.change import DeregistrationReason, RemovalCause
from poolmuster.model.errors import RelayDeregistered
from poolmuster.service.expiry import TICK_MS
from tests.contract.conftest import HEARTBEAT_MS, LEASE_MS, World
from tests.support.registrations import deregistration, key, registration

HOUR_MS = 3_600_000


async def test_l1_a_registration_is_listed_once_it_is_read_back(world: World) -> None:
    await world.put("b", weight=3)
    await world.put("a")
    assert world.listed == ["a", "b"]
    assert world.told == ["added b", "added a"]


async def test_l2_a_lease_ends_on_the_millisecond_though_nothing_else_happens(world: World) -> None:
    await world.clock.advance(TICK_MS // 2)
    await world.put()
    await world.clock.advance(LEASE_MS - 1)
    assert world.listed == ["a"]
    assert world.lease_ends_in_ms() == 1
    await world.clock.advance(1)
    assert world.listed == []
    removal = world.catalog.lookup(key()).removal
    assert removal is not None
    assert (removal.cause, removal.reason, removal.at_ms) == (RemovalCause.EXPIRED, None, world.clock.wall_ms())


async def test_l2_a_renewal_moves_the_end(world: World) -> None:
    await world.put()
    await world.clock.advance(LEASE_MS - 1)
    await world.put()
    await world.clock.advance(LEASE_MS - 1)
    assert world.listed == ["a"]
    await world.clock.advance(1)
    assert world.listed == []


async def test_l3_a_renewal_with_equal_facts_is_not_a_change(world: World) -> None:
    await world.put(models=[{"id": "x"}, {"id": "y"}])
    revision = world.catalog.revision
    await world.put(models=[{"id": "y"}, {"id": "x"}, {"id": "y"}])
    assert world.catalog.revision == revision
    await world.put(models=[{"id": "y"}])
    assert world.told == ["added a", "changed a"]


async def test_leaving_is_at_once_and_says_why(world: World) -> None:
    await world.put()
    await world.leave(relay_id="r", reason=DeregistrationReason.RELAY_STOPPING)
    assert world.listed == []
    removal = world.catalog.lookup(key()).removal
    assert removal is not None
    assert (removal.cause, removal.reason) == (RemovalCause.DEREGISTERED, DeregistrationReason.RELAY_STOPPING)
    await world.clock.advance(LEASE_MS)
    assert world.told.count("removed a") == 1


async def test_a_late_heartbeat_of_a_relay_that_left_is_refused_and_changes_nothing(world: World) -> None:
    await world.put()
    await world.leave(relay_id="r")
    with pytest.raises(RelayDeregistered):
        await world.put()
    assert world.listed == []


async def test_it_is_refused_for_an_hour_and_not_longer(world: World) -> None:
    await world.put()
    await world.leave(relay_id="r")
    world.clock.jump(HOUR_MS - 1)
    with pytest.raises(RelayDeregistered):
        await world.put()
    world.clock.jump(1)
    await world.put()
    assert world.listed == ["a"]


async def test_a_refused_heartbeat_does_not_prolong_the_hour(world: World) -> None:
    await world.put()
    await world.leave(relay_id="r")
    world.clock.jump(HOUR_MS // 2)
    with pytest.raises(RelayDeregistered):
        await world.put()
    world.clock.jump(HOUR_MS // 2)
    await world.put()
    assert world.listed == ["a"]


async def test_a_relay_that_left_after_its_lease_ended_is_refused_too(world: World) -> None:
    await world.put()
    await world.clock.advance(LEASE_MS)
    await world.leave(relay_id="r")
    with pytest.raises(RelayDeregistered):
        await world.put()


async def test_a_successor_is_taken_and_after_it_the_one_that_left(world: World) -> None:
    await world.put(relay_id="r1")
    await world.leave(relay_id="r1")
    await world.put(relay_id="r2")
    assert world.listed == ["a"]
    await world.put(relay_id="r1")
    assert world.listed == ["a"]


async def test_a_relay_that_is_no_longer_the_latest_takes_nothing_away(world: World) -> None:
    """A rolling update of a relay: the new one is up, then the old one stops."""
    await world.put(relay_id="old")
    await world.put(relay_id="new")
    await world.leave(relay_id="old")
    assert world.listed == ["a"]
    assert world.told == ["added a"]
    await world.put(relay_id="new")
    await world.put(relay_id="old")


async def test_an_operator_takes_away_whoever_registered_and_bars_nobody(world: World) -> None:
    await world.put()
    await world.leave(reason=DeregistrationReason.OPERATOR)
    assert world.listed == []
    await world.put()
    assert world.listed == ["a"]


async def test_after_an_operator_the_latest_relay_can_still_leave_and_stays_away(world: World) -> None:
    await world.put()
    await world.leave(reason=DeregistrationReason.OPERATOR)
    await world.leave(relay_id="r", reason=DeregistrationReason.RELAY_STOPPING)
    with pytest.raises(RelayDeregistered):
        await world.put()


async def test_an_operators_word_after_a_relays_lets_that_relay_come_back(world: World) -> None:
    await world.put()
    await world.leave(relay_id="r")
    await world.leave(reason=DeregistrationReason.OPERATOR)
    await world.put()
    assert world.listed == ["a"]


async def test_without_a_relay_id_one_can_register_again_after_leaving(world: World) -> None:
    await world.put(relay_id=None)
    await world.leave(relay_id="somebody")
    assert world.listed == ["a"]
    await world.leave()
    assert world.listed == []
    await world.put(relay_id=None)
    assert world.listed == ["a"]


async def test_of_an_unknown_key_nothing_is_written(world: World) -> None:
    await world.leave(relay_id="r")
    await world.leave()
    assert world.told == []
    await world.put()
    assert world.listed == ["a"]


async def test_keys_that_look_alike_are_different_pools(world: World) -> None:
    for name in ("a", "A", "a%2Fb", "a/b", "a#b", "a%23b", "\u00e9", "e\u0301"):
        await world.put(name)
    assert len(world.listed) == 8
    await world.leave("a/b")
    assert "a/b" not in world.listed
    assert "a%2Fb" in world.listed


async def test_l9_relays_that_take_turns_are_told_once_and_the_latest_is_listed(world: World) -> None:
    for relay_id, weight in [("A", 1), ("B", 2), ("A", 1), ("B", 2)]:
        await world.put(relay_id=relay_id, weight=weight)
        await world.clock.advance(1000)
    assert [(told.dgd_name, relays) for told, relays in world.conflicts] == [("a", ("A", "B"))]
    conflict = world.catalog.lookup(key()).conflict
    assert conflict is not None
    assert conflict.relay_ids == ("A", "B")
    pool = world.catalog.pools.get(key())
    assert pool is not None
    assert pool.document["weight"] == 2
    for _ in range(LEASE_MS // HEARTBEAT_MS):
        await world.put(relay_id="B", weight=2)
        await world.clock.advance(HEARTBEAT_MS)
    assert world.catalog.lookup(key()).conflict is None


async def test_every_write_at_once_is_one_after_the_other(world: World) -> None:
    for number in range(50):
        await world.store.put(registration(f"{number:02}", "r"))
    for number in range(0, 50, 2):
        await world.store.deregister(deregistration(f"{number:02}", "r"))
    await world.clock.settle()
    assert world.listed == [f"{number:02}" for number in range(1, 50, 2)]
