"""Time limits on the injected clock."""

import asyncio
import weakref

import pytest

from poolmuster.sources.peers.deadline import Deadline
from tests.support.clock import ManualClock
from tests.support.garbage import collector_stopped


class Ended(Exception):
    """An end that is no timeout."""


async def wait(deadline: Deadline, for_ms: int, clock: ManualClock) -> str:
    async with deadline:
        await clock.sleep_ms(for_ms)
        return "done"


async def test_a_block_that_is_done_in_time_is_not_disturbed() -> None:
    clock = ManualClock()
    task = asyncio.create_task(wait(Deadline(clock, 1_000), 999, clock))
    await clock.advance(5_000)
    assert await task == "done"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_block_that_takes_longer_times_out_at_the_limit() -> None:
    clock = ManualClock()
    task = asyncio.create_task(wait(Deadline(clock, 1_000), 1_001, clock))
    await clock.advance(999)
    assert not task.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await task


async def test_each_message_extends_it_and_it_remembers_that() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 1_000)
    task = asyncio.create_task(wait(deadline, 60_000, clock))
    extended = [deadline.extended]
    for _ in range(5):
        await clock.advance(900)
        deadline.extend(1_500)
    assert [*extended, deadline.extended] == [False, True]
    await clock.advance(1_499)
    assert not task.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await task


async def test_it_may_be_ended_with_another_error_and_a_second_end_changes_nothing() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 1_000)
    task = asyncio.create_task(wait(deadline, 60_000, clock))
    await clock.settle()
    deadline.end(Ended)
    deadline.end(TimeoutError)
    with pytest.raises(Ended):
        await task
    deadline.end(TimeoutError)
    await clock.settle()


async def test_a_cancellation_from_outside_is_no_timeout() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 1_000)
    task = asyncio.create_task(wait(deadline, 60_000, clock))
    await clock.settle()
    deadline.end(TimeoutError)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_of_two_around_each_other_either_may_end_the_block_and_both_at_once() -> None:
    clock = ManualClock()
    for outer_ms, inner_ms in ((1_000, 5_000), (5_000, 1_000), (1_000, 1_000)):

        async def both(outer: Deadline, inner: Deadline) -> None:
            async with outer, inner:
                await clock.sleep_ms(60_000)

        task = asyncio.create_task(both(Deadline(clock, outer_ms), Deadline(clock, inner_ms)))
        await clock.advance(1_000)
        with pytest.raises(TimeoutError):
            await task


@pytest.mark.parametrize("end", ["done", "timeout", "cancelled"])
async def test_nothing_of_it_waits_for_the_garbage_collector(end: str) -> None:
    clock = ManualClock()
    with collector_stopped():
        deadline = Deadline(clock, 1_000)
        left = weakref.ref(deadline)
        task = asyncio.create_task(wait(deadline, 500 if end == "done" else 60_000, clock))
        del deadline
        await clock.advance(500)
        if end == "cancelled":
            task.cancel()
        await clock.advance(1_000)
        await asyncio.gather(task, return_exceptions=True)
        del task
        await clock.settle()
        assert left() is None
