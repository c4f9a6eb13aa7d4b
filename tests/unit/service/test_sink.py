"""The catalog's sinks: in which order the parts of an update take effect, and what counts meanwhile."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from poolmuster.model.change import ChangeKind, DeregistrationReason, RemovalCause
from poolmuster.model.key import PoolKey
from poolmuster.model.schema import RouterReplica
from poolmuster.model.source import SourceKind, SourceState
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.updates import Placements, SourceUpdate
from poolmuster.service.catalog import APPLY_BATCH
from tests.support.registrations import deregistration, key
from tests.unit.service.updates import FRESH, LEASE_MS, STALE, UNKNOWN, SilentStore, World, renew

MANY = 5_000
SEVERAL = 2 * APPLY_BATCH + 50
"""More than two slices."""


def numbered(count: int) -> list[str]:
    return [f"{number:04}" for number in range(count)]


async def each_turn(task: "asyncio.Task[None]", check: Callable[[], None]) -> int:
    """Check at every turn of the event loop until ``task`` is done. Returns how many turns that took."""
    turns = 0
    async with asyncio.timeout(60):
        while not task.done():
            check()
            await asyncio.sleep(0)
            turns += 1
    await task
    return turns


@pytest.fixture
def world() -> World:
    return World()


# Completeness while an update is applied.


async def test_h5_a_first_read_of_5000_pools_is_complete_only_when_all_are_listed(world: World) -> None:
    def check() -> None:
        world.tick()
        if len(world.catalog.pools) < MANY:
            value = world.catalog.completeness()
            assert not value.complete
            assert value.sources[0].state is SourceState.UNKNOWN, "so lists answer 503"

    task = asyncio.create_task(world.good_read(*numbered(MANY)))
    assert await each_turn(task, check) >= MANY // APPLY_BATCH
    assert world.catalog.completeness().complete
    assert world.events[-1] == "completeness", "watchers get it after the last pool"
    assert world.events.count("completeness") == 1


async def test_h5_so_it_is_after_an_outage(world: World) -> None:
    await world.good_read("a")
    world.store.now = (STALE, FRESH)
    world.sink.statuses_changed()
    assert not world.catalog.completeness().complete

    def check() -> None:
        if len(world.catalog.pools) < SEVERAL + 1:
            world.catalog.refresh()
            assert not world.catalog.completeness().complete

    await each_turn(asyncio.create_task(world.good_read("a", *numbered(SEVERAL))), check)
    assert world.catalog.completeness().complete


async def test_while_two_updates_wait_neither_makes_the_list_complete(world: World) -> None:
    first = asyncio.create_task(world.good_read(*numbered(SEVERAL)))
    second = asyncio.create_task(world.good_read("last"))

    def check() -> None:
        world.catalog.refresh()
        if len(world.catalog.pools) < SEVERAL + 1:
            assert not world.catalog.completeness().complete

    await each_turn(asyncio.create_task(_both(first, second)), check)
    assert world.catalog.completeness().complete


async def _both(*tasks: "asyncio.Task[None]") -> None:
    await asyncio.gather(*tasks)


async def test_a_source_that_turns_stale_meanwhile_is_stale_at_once(world: World) -> None:
    await world.good_read("a")
    task = asyncio.create_task(world.good_read(*numbered(SEVERAL)))
    await asyncio.sleep(0)
    assert world.catalog.completeness().complete, "the read before it is still good"
    world.store.now = (FRESH, STALE)
    world.sink.statuses_changed()
    assert not world.catalog.completeness().complete
    await task
    assert not world.catalog.completeness().complete


async def test_stale_statuses_take_effect_before_leases_end_and_watchers_get_them_first(world: World) -> None:
    await world.good_read(*numbered(SEVERAL))
    world.clock.jump(LEASE_MS)
    world.tick()
    world.changes.clear()
    world.store.now = (FRESH, STALE)
    update = world.update(expire=True, statuses=world.store.now)

    def check() -> None:
        if len(world.catalog.pools) < SEVERAL:
            assert not world.catalog.completeness().complete

    assert await each_turn(asyncio.create_task(world.sink.apply(update)), check) > 2
    assert world.events == ["completeness", *(f"removed {name}" for name in numbered(SEVERAL))]
    assert [(each.name, each.state) for each in world.changes[0].sources] == [
        ("t", SourceState.FRESH),
        ("r", SourceState.STALE),
    ]


# The order of the parts.


async def test_the_credit_counts_before_leases_end(world: World) -> None:
    await world.good_read("a")
    world.clock.jump(LEASE_MS)
    await world.sink.apply(world.update(credit_ms=1, expire=True))
    assert world.listed == ["a"]
    world.clock.jump(1)
    await world.sink.apply(world.update(expire=True))
    assert world.listed == []


async def test_the_credit_does_not_prolong_the_renewals_of_its_own_update(world: World) -> None:
    await world.sink.apply(world.update(names=["a"], credit_ms=20_000))
    lease = world.catalog.leases.get(key("a"))
    assert lease is not None
    assert world.catalog.leases.remaining_ms(lease, world.now_ms) == LEASE_MS


async def test_renewals_count_before_leases_end(world: World) -> None:
    await world.good_read("a", "b")
    world.clock.jump(LEASE_MS)
    await world.sink.apply(world.update(names=["a"], expire=True))
    assert world.listed == ["a"]
    assert world.events[-1] == "removed b"
    removal = world.changes[-1].removal
    assert removal is not None
    assert removal.cause is RemovalCause.EXPIRED


async def test_leases_end_only_with_an_update_that_says_so(world: World) -> None:
    await world.good_read("a")
    world.clock.jump(2 * LEASE_MS)
    await world.sink.apply(world.update())
    world.tick()
    assert world.listed == ["a"]
    await world.sink.apply(world.update(expire=True))
    assert world.listed == []


async def test_deregistrations_count_after_renewals_and_before_leases_end(world: World) -> None:
    await world.good_read("b")
    world.clock.jump(LEASE_MS)
    update = SourceUpdate(
        started_ms=world.now_ms,
        renewals=(renew("a"),),
        deregistrations=(
            deregistration("a", None, DeregistrationReason.OPERATOR),
            deregistration("b", None, DeregistrationReason.NO_MODELS),
        ),
        expire=True,
    )
    world.changes.clear()
    await world.sink.apply(update)
    assert world.events == ["added a", "removed a", "removed b"]
    assert [each.removal.reason for each in world.changes if each.removal] == [
        DeregistrationReason.OPERATOR,
        DeregistrationReason.NO_MODELS,
    ]


async def test_an_update_without_statuses_leaves_completeness_as_it_is(world: World) -> None:
    await world.good_read("a")
    world.store.now = (UNKNOWN,)
    await world.sink.apply(world.update(names=["b"]))
    assert world.catalog.completeness().complete
    world.sink.statuses_changed()
    assert not world.catalog.completeness().complete


# Many updates and their senders.


async def test_updates_of_one_source_are_applied_one_after_the_other(world: World) -> None:
    names = numbered(SEVERAL)
    last = names[-1]
    tasks = [
        asyncio.create_task(world.sink.apply(update))
        for update in (
            world.update(names=names),
            world.update(left=[last]),
            SourceUpdate(started_ms=world.now_ms, renewals=(renew(last, weight=1),)),
        )
    ]
    await asyncio.gather(*tasks)
    assert world.events == [*(f"added {name}" for name in names), f"removed {last}", f"added {last}"]
    pool = world.catalog.pools.get(key(last))
    assert pool is not None
    assert pool.document["weight"] == 1


async def test_an_update_returns_when_all_of_it_is_applied(world: World) -> None:
    await world.sink.apply(world.update(names=numbered(SEVERAL)))
    assert len(world.catalog.pools) == SEVERAL


async def test_a_short_update_is_applied_before_it_returns_without_another_turn(world: World) -> None:
    apply = world.sink.apply(world.update(names=["a"]))
    with pytest.raises(StopIteration):
        apply.send(None)
    assert world.listed == ["a"]


async def test_a_sender_that_is_cancelled_does_not_lose_the_rest_of_its_update(world: World) -> None:
    names = numbered(MANY)
    sender = asyncio.create_task(world.good_read(*names))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < len(world.catalog.pools) < MANY
    sender.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sender
    assert not world.catalog.completeness().complete
    await world.sink.apply(world.update(left=names[-1:]))
    assert world.listed == names[:-1], "the next update waits for the rest"
    assert world.catalog.completeness().complete


async def test_sources_do_not_wait_for_each_other(world: World) -> None:
    other = world.catalog.attach(SilentStore())
    task = asyncio.create_task(world.sink.apply(world.update(names=numbered(SEVERAL))))
    await asyncio.sleep(0)
    await other.apply(world.update(names=["other"]))
    assert world.catalog.is_live(key("other"))
    assert len(world.catalog.pools) < SEVERAL
    await task


# Placements and routers.


def placed(*names: str, removed: Iterable[str] = (), whole: bool = False) -> Placements[PoolKey]:
    return Placements(added=frozenset(map(key, names)), removed=frozenset(map(key, removed)), whole=whole)


async def test_placements_list_live_pools_and_unlist_those_that_are_gone() -> None:
    world = World(has_topology=True)
    topology = world.catalog.attach(SilentStore())
    await world.good_read("a", "b")
    assert world.listed == []
    await topology.apply(SourceUpdate(started_ms=world.now_ms, placements=placed("a", "dead", whole=True)))
    assert world.listed == ["a"]
    await topology.apply(SourceUpdate(started_ms=world.now_ms, placements=placed("b", removed=["a"])))
    assert world.listed == ["b"]
    removal = world.catalog.lookup(key("a")).removal
    assert removal is not None
    assert removal.cause is RemovalCause.UNLISTED
    await topology.apply(SourceUpdate(started_ms=world.now_ms, placements=placed(whole=True)))
    assert world.listed == []
    assert world.catalog.is_live(key("b")), "limits count it all the same"


async def test_many_placements_take_several_turns_and_no_list_is_complete_before_the_last() -> None:
    world = World(has_topology=True)
    topology_store = SilentStore()
    topology = world.catalog.attach(topology_store)
    await world.good_read(*numbered(SEVERAL))

    async def list_all() -> None:
        topology_store.now = (SourceStatus(kind=SourceKind.TOPOLOGY, name="topology"),)
        placements = placed(*numbered(SEVERAL), whole=True)
        await topology.apply(SourceUpdate(started_ms=world.now_ms, placements=placements, statuses=topology_store.now))

    def check() -> None:
        world.catalog.refresh()
        if len(world.catalog.pools) < SEVERAL:
            assert not world.catalog.completeness().complete

    assert await each_turn(asyncio.create_task(list_all()), check) > 2
    assert len(world.catalog.pools) == SEVERAL
    assert world.catalog.completeness().complete


async def test_placements_count_after_renewals_and_before_leases_end() -> None:
    world = World(has_topology=True)
    await world.good_read("old")
    world.clock.jump(LEASE_MS)
    world.changes.clear()
    update = SourceUpdate(
        started_ms=world.now_ms,
        renewals=(renew("new"),),
        placements=placed("old", "new", whole=True),
        expire=True,
    )
    await world.sink.apply(update)
    assert sorted(world.events[:2]) == ["added new", "added old"]
    assert world.events[2:] == ["removed old"]


async def test_routers_are_the_whole_set_of_their_source(world: World) -> None:
    one, two, three = (RouterReplica(id=name, url=f"https://{name}") for name in ("one", "two", "three"))
    other = world.catalog.attach(SilentStore())
    await world.sink.apply(SourceUpdate(started_ms=world.now_ms, routers=(one, two)))
    await other.apply(SourceUpdate(started_ms=world.now_ms, routers=(three,)))
    assert list(world.catalog.routers) == [one, two, three]
    await world.sink.apply(world.update(names=["a"]))
    assert list(world.catalog.routers) == [one, two, three], "an update without routers leaves them"
    await world.sink.apply(SourceUpdate(started_ms=world.now_ms, routers=()))
    assert list(world.catalog.routers) == [three]
    assert [each.kind for each in world.changes] == [ChangeKind.ADDED], "routers are no change of the list"
