"""What every registration store makes of time: pauses, steps of the wall clock, and whether its list is complete."""

from collections.abc import AsyncIterator

import pytest

from poolmuster.model.change import ChangeKind
from poolmuster.model.source import SourceReason, SourceState
from poolmuster.service.expiry import TICK_MS
from poolmuster.sources.memory import MemoryStore
from poolmuster.sources.peers.store import PeerStore
from tests.contract.conftest import HEARTBEAT_MS, LEASE_MS, STORES, World
from tests.support.clock import ManualClock
from tests.support.registrations import registration

SLACK_MS = LEASE_MS - HEARTBEAT_MS
HOUR_MS = 3_600_000


@pytest.fixture
async def memory() -> AsyncIterator[World]:
    """The rules of warming up are the memory store's own: a table knows at its first read.

    With peers, a pause makes more of the list doubtful than what is in memory here.
    """
    async with World(STORES["memory"]) as world:
        yield world


@pytest.fixture(params=sorted(STORES))
async def in_memory(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """What holds with peers as well."""
    async with World(STORES[request.param]) as world:
        # Where there is a name to be resolved, that has been done.
        world.complete()
        world.changes.clear()
        yield world


async def test_l5_after_a_pause_of_a_minute_no_pool_is_lost(world: World) -> None:
    await world.keep_alive("a", for_ms=20_000)
    world.clock.jump(60_000)
    await world.clock.advance(HEARTBEAT_MS)
    assert world.listed == ["a"]
    await world.keep_alive("a", for_ms=20_000)
    assert "removed a" not in world.told


async def test_l5_a_pool_that_is_dead_all_the_same_goes_a_lease_after_its_last_heartbeat_the_pause_left_out(
    world: World,
) -> None:
    await world.put()
    await world.clock.advance(1000)
    world.clock.jump(60_000)
    await world.clock.advance(LEASE_MS - 1000 - 1 - world.uncredited_ms)
    assert world.listed == ["a"]
    await world.clock.advance(HEARTBEAT_MS)
    assert world.listed == []


async def test_l5_a_request_before_the_timer_loses_no_pool_either(world: World) -> None:
    await world.put("a")
    world.clock.jump(60_000)
    await world.store.put(registration("b", "r"))
    assert world.listed == ["a", "b"]
    await world.clock.advance(LEASE_MS - 1)
    assert "b" in world.listed
    await world.clock.advance(HEARTBEAT_MS)
    assert world.listed == []


async def test_l5_a_slow_timer_is_no_pause(world: World) -> None:
    await world.put()
    for _ in range(15):
        world.clock.jump(900)
        await world.clock.advance(100)
    assert world.listed == []


async def test_l4_steps_of_the_wall_clock_change_nothing(world: World) -> None:
    await world.keep_alive("a", for_ms=20_000)
    told, complete = list(world.told), world.complete()
    for step_ms in (HOUR_MS, -2 * HOUR_MS, HOUR_MS):
        world.clock.step_wall(step_ms)
        await world.keep_alive("a", for_ms=20_000)
        assert world.lease_ends_in_ms() == LEASE_MS - HEARTBEAT_MS
    assert world.told == told
    assert world.complete() == complete
    await world.clock.advance(LEASE_MS - HEARTBEAT_MS - 1)
    assert world.listed == ["a"]
    await world.clock.advance(1)
    assert world.listed == []


async def test_l8_it_is_complete_when_exactly_one_lease_has_passed(in_memory: World) -> None:
    started_at_ms = in_memory.clock.wall_ms()
    source = in_memory.source
    assert (source.state, source.reason, source.clears_in_ms) == (SourceState.STALE, SourceReason.WARMING_UP, LEASE_MS)
    assert (source.since_at_ms, source.last_good_at_ms) == (started_at_ms, None)
    await in_memory.clock.advance(LEASE_MS - 1)
    assert not in_memory.complete()
    assert 1 <= (in_memory.source.clears_in_ms or 0) <= TICK_MS, "as of the last tick"
    await in_memory.clock.advance(1)
    assert in_memory.complete()
    source = in_memory.source
    assert (source.state, source.reason, source.clears_in_ms) == (SourceState.FRESH, None, None)
    assert source.since_at_ms == started_at_ms + LEASE_MS


async def test_l8_watchers_are_told_that_it_is_complete_though_nobody_asks(in_memory: World) -> None:
    await in_memory.clock.advance(LEASE_MS + 100)
    assert in_memory.told == ["completeness"]
    assert in_memory.changes[0].sources[0].state is SourceState.FRESH


async def test_l8_a_request_does_not_run_ahead_of_the_watchers(in_memory: World) -> None:
    await in_memory.clock.advance(LEASE_MS - 1)
    in_memory.clock.jump(1)
    assert not in_memory.complete(), "a request changes nothing, and no event was sent yet"
    assert in_memory.told == []
    await in_memory.clock.advance(0)
    assert in_memory.complete()
    assert in_memory.told == ["completeness"]
    await in_memory.clock.advance(1000)
    assert in_memory.told == ["completeness"]


async def test_l5_after_a_pause_over_the_slack_the_list_is_not_complete_for_a_lease(memory: World) -> None:
    await memory.keep_alive("a", for_ms=20_000)
    memory.clock.jump(SLACK_MS + 1)
    assert not memory.complete(), "a request before the timer must not get what was true before the pause"
    await memory.clock.settle()
    assert memory.source.reason is SourceReason.WARMING_UP, "the request made the timer run at once"
    await memory.keep_alive("a", for_ms=LEASE_MS - HEARTBEAT_MS)
    await memory.clock.advance(HEARTBEAT_MS - 1)
    assert not memory.complete()
    await memory.clock.advance(1)
    assert memory.complete()
    kinds = [each.kind for each in memory.changes if each.kind is ChangeKind.COMPLETENESS]
    assert len(kinds) == 3


async def test_l5_a_pause_within_the_slack_leaves_it_complete(memory: World) -> None:
    await memory.clock.advance(LEASE_MS)
    assert memory.complete()
    memory.clock.jump(SLACK_MS - 250)
    assert not memory.complete(), "its last tick is over a second old"
    await memory.clock.settle()
    assert memory.complete()
    await memory.clock.advance(LEASE_MS)
    assert memory.told == ["completeness"]


async def test_l5_the_timer_notices_a_pause_by_itself(memory: World) -> None:
    await memory.clock.advance(LEASE_MS)
    memory.clock.jump(60_000)
    await memory.clock.advance(100)
    assert memory.told == ["completeness", "completeness"]
    assert memory.changes[1].sources[0].reason is SourceReason.WARMING_UP


async def test_l5_a_pause_while_warming_up_does_not_count_as_time_in_which_relays_were_heard(in_memory: World) -> None:
    await in_memory.clock.advance(1000)
    in_memory.clock.jump(8000)
    await in_memory.clock.advance(LEASE_MS - 1000 - 1)
    assert not in_memory.complete()
    await in_memory.clock.advance(1)
    assert in_memory.complete()


async def test_l7_a_pause_removes_nothing_and_the_list_stays_while_it_warms_up(in_memory: World) -> None:
    await in_memory.keep_alive("a", "b", for_ms=20_000)
    in_memory.clock.jump(60_000)
    assert not in_memory.complete()
    assert in_memory.listed == ["a", "b"]


async def test_what_is_remembered_of_pools_that_are_gone_is_forgotten(in_memory: World) -> None:
    store = in_memory.store
    assert isinstance(store, MemoryStore | PeerStore)
    await in_memory.put("a")
    await in_memory.leave("a", relay_id="r")
    await in_memory.clock.advance(60_000)
    assert len(store) == 1
    in_memory.clock.jump(HOUR_MS)
    await in_memory.put("b")
    await in_memory.clock.advance(LEASE_MS + 1000)
    assert len(store) == 1


async def test_a_store_starts_nothing_before_it_is_run() -> None:
    clock = ManualClock()
    world = World(STORES["memory"], clock)
    await clock.advance(100)
    assert world.told == []
