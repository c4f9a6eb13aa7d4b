"""The polled store on a clock of the test's and a scripted table: when it reads, and what a failed read means."""

import asyncio
from collections.abc import AsyncIterator
from email.utils import formatdate

import pytest

from poolmuster.model.source import SourceReason, SourceState
from poolmuster.sources.polled.items import live_item
from poolmuster.sources.polled.store import PARSE_BATCH, READ_LIMIT_MS
from poolmuster.sources.polled.table import StoredItem
from tests.support.clock import ManualClock
from tests.support.registrations import deregistration, key, registration
from tests.unit.sources.polled.worlds import LEASE_MS, World, failure

HOUR_MS = 3_600_000


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock)


@pytest.fixture
async def running(world: World) -> AsyncIterator[World]:
    """The store, reading by itself."""
    task = asyncio.create_task(world.store.run(world))
    await world.clock.settle()
    yield world
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# When it reads.


async def test_it_reads_once_a_second_from_start_to_start(running: World) -> None:
    start_ms = running.clock.monotonic_ms()
    running.table.takes_ms = 300
    await running.clock.advance(3_500)
    assert running.starts_ms == [start_ms + each for each in (0, 1000, 2000, 3000)]


async def test_never_two_reads_at_once_though_a_read_takes_longer_than_a_second(running: World) -> None:
    running.table.takes_ms = 1_700
    for number in range(10):
        await running.store.put(registration(f"{number}", "r"))
        await running.clock.advance(1_000)
    assert {under_way for _, under_way, _ in running.table.scans} == {1}


async def test_a_write_that_adds_changes_or_removes_is_read_back_at_once(running: World) -> None:
    await running.clock.advance(500)
    now_ms = running.clock.monotonic_ms()
    await running.store.put(registration("a", "r"))
    await running.clock.settle()
    assert running.starts_ms[-1] == now_ms
    for write in (
        running.store.put(registration("a", "r", weight=1)),
        running.store.deregister(deregistration("a", "r")),
        running.store.put(registration("a", "another")),
    ):
        await running.clock.advance(300)
        count = len(running.starts_ms)
        await write
        await running.clock.settle()
        assert len(running.starts_ms) == count + 1
    assert running.recorder.extra == 4


async def test_a_renewal_is_not_read_back_at_once(running: World) -> None:
    await running.store.put(registration("a", "r"))
    await running.clock.advance(2_500)
    count = len(running.starts_ms)
    await running.store.put(registration("a", "r"))
    await running.clock.settle()
    assert len(running.starts_ms) == count


async def test_a_pool_that_comes_back_after_its_lease_is_read_back_at_once(running: World) -> None:
    await running.store.put(registration("a", "r"))
    await running.clock.advance(LEASE_MS + 2_500)
    count = len(running.starts_ms)
    await running.store.put(registration("a", "r"))
    await running.clock.settle()
    assert len(running.starts_ms) == count + 1


async def test_at_most_four_extra_reads_a_second(running: World) -> None:
    await running.clock.advance(1_000)
    before = len(running.starts_ms)
    for number in range(100):
        await running.store.put(registration(f"{number}", "r"))
        await running.clock.advance(100)
    reads = running.starts_ms[before:]
    assert len(reads) <= 10 * 5
    assert all(after - first >= 1000 for first, after in zip(reads, reads[5:], strict=False))


async def test_the_table_is_open_while_the_store_runs(world: World) -> None:
    task = asyncio.create_task(world.store.run(world))
    await world.clock.settle()
    assert world.table.is_open
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not world.table.is_open


# What a read is.


async def test_a_scan_has_two_seconds_from_its_start(world: World) -> None:
    await world.read_once()
    ((started_ms, _, ends_ms),) = world.table.scans
    assert ends_ms == started_ms + READ_LIMIT_MS


async def test_a_failed_read_is_no_update_whatever_it_returned_before_and_tells_the_sink(world: World) -> None:
    world.has()
    world.table.errors = [failure(SourceReason.THROTTLED)]
    await world.read_once()
    assert world.recorder.reads == ["throttled"]
    assert world.updates == []
    assert world.failures == 1


async def test_an_error_of_the_product_has_the_reason_that_the_table_gives_it(world: World) -> None:
    world.table.errors = [OSError("gone")]
    await world.read_once()
    assert world.recorder.reads == ["unreachable"]
    assert (world.source.reason, world.source.detail) == (SourceReason.UNREACHABLE, "gone")


async def test_a_read_that_took_longer_than_its_limit_has_failed_whatever_it_returned(world: World) -> None:
    world.has()
    world.table.takes_ms = READ_LIMIT_MS + 1
    read = asyncio.create_task(world.read_once())
    await world.clock.advance(READ_LIMIT_MS + 1)
    await read
    assert world.recorder.reads == ["timeout"]
    assert world.updates == []


async def test_an_item_that_does_not_parse_hides_no_other(world: World) -> None:
    world.table.items["x"] = StoredItem(key="x", registration=None, ends_ms=None)
    world.has("a")
    world.table.items["y"] = StoredItem(key="", registration="{}", ends_ms=1)
    await world.read_once()
    assert world.recorder.reads == ["good"]
    assert world.renewed == {key("a")}


async def test_a_good_read_is_one_update_that_ends_leases_and_has_the_statuses(world: World) -> None:
    for number in range(250):
        world.has(f"{number}")
    await world.read_once()
    (update,) = world.updates
    assert (len(update.renewals), update.expire) == (250, True)
    assert update.statuses is not None
    assert [(each.name, each.is_fresh, each.fresh_until_ms) for each in update.statuses] == [
        ("t", True, update.started_ms + 3_000)
    ]


async def test_other_tasks_run_while_many_items_are_parsed(world: World) -> None:
    for number in range(1_000):
        world.has(f"{number}")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    turns = 0
    await world.read_once()
    counting.cancel()
    assert turns == 1_000 // PARSE_BATCH


async def test_l5_an_outage_is_credited_at_the_next_good_read(running: World) -> None:
    running.has()
    await running.clock.advance(1_000)
    running.table.errors = [failure()] * 20
    await running.clock.advance(20_000)
    running.table.errors = []
    running.updates.clear()
    await running.clock.advance(1_000)
    assert [each.credit_ms for each in running.updates if each.credit_ms] == [21_000 - 3_000]


# Its statuses.


async def test_l8_unknown_before_the_first_good_read_with_the_reason_of_the_last_failure(world: World) -> None:
    assert (world.source.state, world.source.reason) == (SourceState.UNKNOWN, SourceReason.WARMING_UP)
    world.table.errors = [failure(SourceReason.ACCESS_DENIED)]
    await world.read_once()
    assert (world.source.state, world.source.reason) == (SourceState.UNKNOWN, SourceReason.ACCESS_DENIED)
    assert world.source.last_good_ms is None
    await world.read_once()
    assert (world.source.state, world.source.reason, world.source.detail) == (SourceState.FRESH, None, None)
    assert world.source.name == "t"


async def test_l8_stale_when_the_last_good_read_began_over_three_seconds_ago(world: World) -> None:
    await world.read_once()
    good_ms = world.clock.monotonic_ms()
    world.clock.jump(3_000)
    assert world.source.state is SourceState.FRESH
    world.clock.jump(1)
    assert (world.source.state, world.source.reason) == (SourceState.STALE, SourceReason.TIMEOUT)
    assert world.source.last_good_ms == good_ms
    world.table.errors = [failure(SourceReason.THROTTLED)]
    await world.read_once()
    assert (world.source.state, world.source.reason) == (SourceState.STALE, SourceReason.THROTTLED)


async def test_a_failure_within_three_seconds_changes_nothing_yet(world: World) -> None:
    await world.read_once()
    world.table.errors = [failure()]
    await world.read_once()
    assert world.recorder.reads == ["good", "unreachable"]
    assert world.source.state is SourceState.FRESH


async def test_a_table_just_back_from_an_outage_warms_up_for_a_lease(world: World) -> None:
    world.has()
    world.clock.jump(LEASE_MS + 60_000)
    await world.read_once()
    source = world.source
    warm_ms = world.clock.monotonic_ms() + LEASE_MS
    assert (source.state, source.reason, source.clears_at_ms) == (SourceState.STALE, SourceReason.WARMING_UP, warm_ms)
    world.clock.jump(LEASE_MS - 2_000)
    await world.read_once()
    assert world.source.clears_at_ms == warm_ms
    world.clock.jump(2_000)
    assert world.source.state is SourceState.FRESH


async def test_a_warming_table_names_that_reason_though_its_last_read_failed(world: World) -> None:
    world.has()
    world.clock.jump(LEASE_MS + 60_000)
    await world.read_once()
    world.table.errors = [failure()]
    await world.read_once()
    assert (world.source.reason, world.source.clears_at_ms is None) == (SourceReason.WARMING_UP, False)


async def test_a_stalled_region_is_a_source_of_its_own(world: World) -> None:
    item = live_item(registration("a", "r"), ends_ms=world.clock.wall_ms() - 1_000, lease_ms=LEASE_MS, writer="far/b")
    world.table.items[item.key] = item
    await world.read_once()
    region = world.store.statuses(world.clock.monotonic_ms())[1]
    assert (region.kind, region.name, region.state) == ("region", "region:far", SourceState.STALE)
    assert region.reason is SourceReason.REPLICATION
    assert region.last_good_ms == world.clock.monotonic_ms() - 1_000 - LEASE_MS


async def test_l4_at_the_first_read_ends_are_judged_by_the_tables_clock(world: World) -> None:
    world.has("ended")
    table_ms = world.clock.wall_ms() + HOUR_MS
    world.table.server_clock.observe(formatdate(table_ms // 1000, usegmt=True), world.clock.monotonic_ms())
    live = live_item(registration("live", "r"), ends_ms=table_ms + LEASE_MS, lease_ms=LEASE_MS, writer="home/b")
    world.table.items[live.key] = live
    await world.read_once()
    assert world.renewed == {key("live")}


# Errors that no table should raise.


async def test_a_read_that_fails_by_an_unknown_error_ends_nothing(world: World) -> None:
    world.has("a")
    await world.read_once()
    world.table.errors = [ZeroDivisionError()]
    await world.read_once()
    assert world.recorder.reads == ["good", "internal"]
    await world.read_once()
    assert world.recorder.reads[-1] == "good"
