"""What consumers of a follower get of its updates, how much may wait for them, and what their going leaves behind."""

import asyncio
import gc

import pytest

from poolmuster.client.errors import Unreachable
from poolmuster.client.subscription import Update, UpdateKind
from tests.unit.client.fakes import ONE, Scene, event, pool, snapshot


async def test_a_consumer_that_is_too_slow_is_told_so() -> None:
    async with Scene() as scene:
        scene.updates._limit = 5
        await scene.send(snapshot("a"), *[event("changed", n, pool=pool("a", weight=n)) for n in range(2, 6)])
        kinds = [update.kind for update in scene.drain()]
        assert kinds == [UpdateKind.OVERRUN]
        await scene.send(event("changed", 6, pool=pool("a", weight=6)))
        assert [update.kind for update in scene.drain()] == [UpdateKind.CHANGED]


async def test_what_waits_is_one_snapshot_and_a_bound_of_bytes_besides() -> None:
    async with Scene() as scene:
        scene.updates._limit_bytes = 1_000
        await scene.send(event("snapshot", pools=[pool("a", pad="x" * 5_000)], complete=True, sources=[]))
        wide = [event("changed", n, pool=pool("a", pad="x" * 300)) for n in range(2, 6)]
        await scene.send(*wide[:2])
        assert [update.kind for update in scene.drain()] == ["connected", "snapshot", "changed", "changed"]
        await scene.send(*wide)
        assert [update.kind for update in scene.drain()] == ["overrun", "changed"], "taken updates make room"
        await scene.send(snapshot("a"), event("added", 2, pool=pool("b")), snapshot("a", "b", number=3))
        overrun, latest = scene.drain()
        assert (overrun.kind, latest.kind) == ("overrun", "snapshot")
        assert latest.event is not None
        assert latest.event.revision == "b.3"


async def test_updates_taken_one_by_one_make_room() -> None:
    async with Scene() as scene:
        scene.updates._limit_bytes = 1_000
        for number in range(1, 9):
            await scene.send(snapshot("a"), event("added", number, pool=pool("b", pad="x" * 600)))
            expected = ["connected"] if number == 1 else []
            for kind in [*expected, "snapshot", "added"]:
                assert (await anext(scene.updates)).kind == kind


async def test_updates_that_nobody_holds_any_more_are_forgotten() -> None:
    async with Scene() as scene:
        del scene.updates

        async def first() -> Update | None:
            async for update in scene.follower.updates():
                return update
            return None

        tasks = [asyncio.create_task(first()) for _ in range(3)]
        scene.follower.updates()
        await scene.send(snapshot("a"))
        assert [(await task) is not None for task in tasks] == [True] * 3
        assert len(scene.follower._subscriptions) == 0


async def test_a_task_that_only_its_updates_know_goes_on() -> None:
    """An event loop holds its tasks weakly, and so does the follower its consumers: together they must not lose one."""
    async with Scene() as scene:
        seen: list[str] = []

        async def consume() -> None:
            async for update in scene.follower.updates():
                seen.append(update.kind)  # noqa: PERF401 - they are looked at as they come

        asyncio.create_task(consume())  # noqa: RUF006 - that is the point
        await scene.clock.settle()
        gc.collect()
        await scene.send(snapshot("a"))
    assert seen == ["connected", "snapshot"]


async def test_an_update_keeps_no_more_alive_than_it_tells() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        cut = Unreachable("cut")
        cut.__cause__ = OSError()
        scene.stream.cut(cut)
        await scene.clock.settle()
        (told,) = scene.drain(lambda update: update.kind is UpdateKind.DISCONNECTED)
        assert told.error is cut
        assert (cut.__traceback__, cut.__cause__.__traceback__) == (None, None)


async def test_the_updates_end_with_the_follower() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        kept = scene.updates
    assert [update.kind async for update in kept] == ["connected", "snapshot"]
    assert [update async for update in scene.follower.updates()] == [], "nor does one that comes later wait"


async def test_whoever_unsubscribes_gets_no_more_however_often() -> None:
    async with Scene() as scene:
        dropped = scene.follower.updates()
        await scene.send(snapshot("a"))
        waiting = scene.follower.updates()
        assert (await anext(waiting)).kind == "overrun", "it comes later than the list"
        waits = asyncio.create_task(anext(waiting, None))
        await scene.clock.settle()
        for _ in range(2):
            scene.follower.unsubscribe(dropped)
            scene.follower.unsubscribe(waiting)
        await scene.send(event("ping", 2))
        assert [update async for update in dropped] == []
        assert await waits is None
    scene.follower.unsubscribe(dropped)


async def test_a_bug_reaches_who_waits_for_updates() -> None:
    async with Scene() as scene:
        scene.source.refusals[ONE] = [ZeroDivisionError()]  # type: ignore[list-item]
        scene.stream.cut()
        await scene.clock.advance(250)
        scene.drain()
        with pytest.raises(ZeroDivisionError):
            await anext(scene.updates)
        assert isinstance(scene.running.exception(), ZeroDivisionError)
        with pytest.raises(ZeroDivisionError):
            await anext(scene.follower.updates())
