"""The broadcaster wakes whom it should, in batches, and nobody else."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from poolmuster.service.broadcaster import BATCH, KEEP_ALIVE_EVERY_MS, Broadcaster
from tests.support.clock import ManualClock


class FakeWaiter:
    """Counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0
        self.asked_ms: list[int] = []

    def wake(self) -> None:
        self.woken += 1

    def wake_if_due(self, now_ms: int) -> None:
        self.asked_ms.append(now_ms)


class FakeGroup:
    """Has news or not, as it was told."""

    def __init__(self, members: int, news: bool) -> None:
        self.members = [FakeWaiter() for _ in range(members)]
        self.news = news
        self.asked = 0

    def poll(self) -> bool:
        self.asked += 1
        return self.news

    def subscribers(self) -> list[FakeWaiter]:
        return self.members

    @property
    def woken(self) -> int:
        return sum(each.woken for each in self.members)


@pytest.fixture
async def running() -> AsyncIterator[tuple[Broadcaster, ManualClock, list[int]]]:
    clock, lags_ms = ManualClock(), list[int]()
    broadcaster = Broadcaster(clock, lags_ms.append)
    tasks = [asyncio.create_task(broadcaster.run()), asyncio.create_task(broadcaster.run_keep_alive())]
    await clock.settle()
    yield broadcaster, clock, lags_ms
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


Running = tuple[Broadcaster, ManualClock, list[int]]


async def test_a_group_without_news_is_not_woken(running: Running) -> None:
    broadcaster, clock, lags_ms = running
    told, quiet = FakeGroup(3, news=True), FakeGroup(3, news=False)
    broadcaster.groups |= {told, quiet}
    broadcaster.wake()
    await clock.settle()
    assert (told.woken, quiet.woken) == (3, 0)
    assert lags_ms == [0]


async def test_many_changes_before_a_round_make_one_round(running: Running) -> None:
    broadcaster, clock, lags_ms = running
    group = FakeGroup(1, news=True)
    broadcaster.groups.add(group)
    for _ in range(10):
        broadcaster.wake()
    await clock.settle()
    assert group.asked == 1
    broadcaster.wake()
    await clock.settle()
    assert group.asked == 2
    assert len(lags_ms) == 2


async def test_the_lag_counts_from_the_first_change(running: Running) -> None:
    broadcaster, clock, lags_ms = running
    broadcaster.wake()
    clock.jump(30)
    broadcaster.wake()
    await clock.settle()
    assert lags_ms == [30]


async def test_others_run_between_two_batches(running: Running) -> None:
    broadcaster, _, _ = running
    group = FakeGroup(3 * BATCH, news=True)
    broadcaster.groups.add(group)
    broadcaster.wake()
    seen = []
    for _ in range(10):
        await asyncio.sleep(0)
        seen.append(group.woken)
    assert all(later - earlier <= BATCH for earlier, later in zip([0, *seen], seen, strict=False))
    assert seen[-1] == 3 * BATCH


async def test_a_watcher_that_goes_while_others_are_woken_does_no_harm(running: Running) -> None:
    broadcaster, clock, _ = running
    group = FakeGroup(2 * BATCH, news=True)
    broadcaster.groups.add(group)
    broadcaster.wake()
    await asyncio.sleep(0)
    group.members.clear()
    broadcaster.groups.clear()
    await clock.settle()


async def test_all_are_asked_twice_a_second_whether_something_is_due(running: Running) -> None:
    broadcaster, clock, _ = running
    group = FakeGroup(2 * BATCH + 1, news=False)
    broadcaster.groups.add(group)
    started_ms = clock.monotonic_ms()
    await clock.advance(1000)
    assert all(
        each.asked_ms == [started_ms + KEEP_ALIVE_EVERY_MS, started_ms + 2 * KEEP_ALIVE_EVERY_MS]
        for each in group.members
    )


async def test_at_the_end_everyone_is_woken_at_once() -> None:
    broadcaster = Broadcaster(ManualClock())
    groups = [FakeGroup(2, news=False), FakeGroup(1, news=True)]
    broadcaster.groups |= set(groups)
    broadcaster.wake_everyone()
    assert [group.woken for group in groups] == [2, 1]
