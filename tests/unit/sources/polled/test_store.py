"""The store on a clock of the test's and calls that follow a script: when it reads, and what a failed read means."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from poolmuster.model.source import SourceReason, SourceState
from poolmuster.sources.dynamodb.items import QueryOutput, item_key, live_item
from tests.support.clock import ManualClock
from tests.support.registrations import deregistration, key, registration

pytest.importorskip("botocore", reason="botocore is not here: it comes with the extra 'dynamodb'")


from poolmuster.sources.dynamodb.store import ATTEMPT_S, READ_LIMIT_MS
from tests.unit.sources.dynamodb.worlds import LEASE_MS, World, page_of, trouble


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock)


@pytest.fixture
async def running(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """The store, reading by itself."""
    monkeypatch.setattr(world.access, "_looked", _set_event())
    task = asyncio.create_task(world.store._read_on(world))
    await world.clock.settle()
    yield world
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


# When it reads.


async def test_it_reads_once_a_second_from_start_to_start(running: World) -> None:
    start_ms = running.clock.monotonic_ms()
    running.calls.takes_ms = 300
    await running.clock.advance(3_500)
    assert running.starts_ms == [start_ms + each for each in (0, 1000, 2000, 3000)]


async def test_never_two_reads_at_once_though_a_read_takes_longer_than_a_second(running: World) -> None:
    running.calls.takes_ms = 1_700
    for number in range(10):
        await running.store.put(registration(f"{number}", "r"))
        await running.clock.advance(1_000)
    assert {under_way for _, under_way, _ in running.calls.pages} == {1}


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
    assert running.notes.extra == 4


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


# What a read is.


async def test_a_failed_page_is_tried_once_more_within_the_same_two_seconds(world: World) -> None:
    world.calls.trouble = [trouble()]
    await world.read_once()
    assert world.notes.reads == ["good"]
    assert world.notes.retries == 1
    assert [limit for _, _, limit in world.calls.pages] == [ATTEMPT_S, READ_LIMIT_MS / 1000]


async def test_a_second_failure_in_one_read_fails_it(world: World) -> None:
    world.calls.trouble = [trouble(), trouble(SourceReason.THROTTLED)]
    await world.read_once()
    assert world.notes.reads == ["throttled"]
    assert world.readings == []
    assert world.troubled == 1


@pytest.mark.parametrize(
    "reason",
    [
        SourceReason.ACCESS_DENIED,
        SourceReason.TABLE_MISSING,
        SourceReason.CREDENTIALS_MISSING,
        SourceReason.CREDENTIALS_EXPIRED,
        SourceReason.CLOCK_SKEW,
    ],
)
async def test_what_trying_again_cannot_mend_is_not_tried_again(world: World, reason: SourceReason) -> None:
    world.calls.trouble = [trouble(reason)]
    await world.read_once()
    assert world.notes.reads == [reason]
    assert world.notes.retries == 0


async def test_a_read_that_took_longer_than_its_limit_has_failed_whatever_it_returned(world: World) -> None:
    world.has()
    world.calls.takes_ms = READ_LIMIT_MS + 1
    read = asyncio.create_task(world.read_once())
    await world.clock.advance(READ_LIMIT_MS + 1)
    await read
    assert world.notes.reads == ["timeout"]
    assert world.readings == []


async def test_the_retry_gets_what_is_left_of_two_seconds_and_none_where_nothing_is(world: World) -> None:
    world.calls.takes_ms = 1_200
    world.calls.trouble = [trouble()]
    read = asyncio.create_task(world.read_once())
    await world.clock.advance(3_000)
    await read
    assert [limit for _, _, limit in world.calls.pages] == [ATTEMPT_S, pytest.approx(0.8)]
    world.calls.pages.clear()
    world.calls.takes_ms = READ_LIMIT_MS
    world.calls.trouble = [trouble()]
    read = asyncio.create_task(world.read_once())
    await world.clock.advance(3_000)
    await read
    assert len(world.calls.pages) == 1


async def test_all_pages_are_read_and_a_page_key_that_comes_twice_fails_the_read(world: World) -> None:
    world.has("a")
    world.has("b")
    one, two = ([item] for item in world.calls.items.values())
    world.calls.script = [page_of(one, item_key(key("a"))), page_of(two)]
    await world.read_once()
    assert {each.record.key for update in world.readings for each in update.renewals} == {key("a"), key("b")}
    world.calls.script = [page_of(one, item_key(key("a"))) for _ in range(2)]
    await world.read_once()
    assert world.notes.reads == ["good", "bad_answer"]


async def test_an_item_that_does_not_parse_hides_no_other(world: World) -> None:
    world.calls.items["x"] = {"sk": {"S": "x"}}
    world.has("a")
    world.calls.items["y"] = {}
    await world.read_once()
    assert world.notes.reads == ["good"]
    assert [each.record.key for update in world.readings for each in update.renewals] == [key("a")]


async def test_a_good_read_is_one_update_that_ends_leases_and_has_the_statuses(world: World) -> None:
    for number in range(250):
        world.has(f"{number}")
    await world.read_once()
    (update,) = world.readings
    assert (len(update.renewals), update.expire) == (250, True)
    assert update.statuses is not None
    assert [(each.name, each.is_fresh, each.fresh_until_ms) for each in update.statuses] == [
        ("t", True, update.started_ms + 3_000)
    ]


async def test_l5_an_outage_is_credited_at_the_next_good_read(running: World) -> None:
    running.has()
    await running.clock.advance(1_000)
    running.calls.trouble = [trouble()] * 40
    await running.clock.advance(20_000)
    running.calls.trouble = []
    running.readings.clear()
    await running.clock.advance(1_000)
    assert [each.credit_ms for each in running.readings if each.credit_ms] == [21_000 - 3_000]


# What it says of its source.


async def test_l8_unknown_before_the_first_good_read_with_the_reason_of_the_last_failure(world: World) -> None:
    assert (world.source.state, world.source.reason) == (SourceState.UNKNOWN, SourceReason.WARMING_UP)
    world.calls.trouble = [trouble(SourceReason.ACCESS_DENIED)]
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
    world.calls.trouble = [trouble(SourceReason.THROTTLED)]
    world.calls.trouble *= 2
    await world.read_once()
    assert (world.source.state, world.source.reason) == (SourceState.STALE, SourceReason.THROTTLED)


async def test_a_failure_within_three_seconds_changes_nothing_yet(world: World) -> None:
    await world.read_once()
    world.calls.trouble = [trouble()] * 2
    await world.read_once()
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


async def test_a_silent_region_is_a_source_of_its_own(world: World) -> None:
    item = live_item(registration("a", "r"), ends_ms=world.clock.wall_ms() - 1_000, lease_ms=LEASE_MS, writer="far/b")
    world.calls.items[item["sk"]["S"]] = item
    await world.read_once()
    region = world.store.statuses(world.clock.monotonic_ms())[1]
    assert (region.kind, region.name, region.state) == ("region", "region:far", SourceState.STALE)
    assert region.reason is SourceReason.REPLICATION
    assert region.last_good_ms == world.clock.monotonic_ms() - 1_000 - LEASE_MS


async def test_run_looks_for_credentials_and_reads_until_it_is_cancelled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    task = asyncio.create_task(world.store.run(world))
    async with asyncio.timeout(10):
        while not world.notes.reads:
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.access.method == "env"


# What may come, whatever it is.


async def test_a_read_that_fails_in_a_way_nobody_thought_of_ends_nothing(world: World) -> None:
    world.has("a")
    await world.read_once()

    async def page(*_: object, **__: object) -> QueryOutput:
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.calls, "page", page)
        await world.read_once()
    assert world.notes.reads == ["good", "internal"]
    await world.read_once()
    assert world.notes.reads[-1] == "good"


async def test_what_went_wrong_before_is_neither_told_again_nor_held_on_to(world: World) -> None:
    """An exception that is raised anew with each read keeps the frames of all of them, and all that they had read."""
    world.calls.trouble = [trouble(SourceReason.THROTTLED), trouble(SourceReason.THROTTLED)]
    await world.read_once()
    one, two = (page_of([], item_key(key(name))) for name in "ab")
    world.calls.takes_ms = 1_200
    for _ in range(2):
        world.calls.script = [one, two]
        update = asyncio.create_task(world.read_once())
        await world.clock.advance(5_000)
        await update
        assert world.store._trouble is not None
        assert world.store._trouble.__traceback__ is None
    assert world.notes.reads == ["throttled", "timeout", "timeout"]
