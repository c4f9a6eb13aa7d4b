"""The follower whose credentials do not count, or no more."""

from poolmuster.model.errors import Forbidden, PoolmusterError, Unauthenticated
from tests.unit.client.fakes import ONE, Scene, event, snapshot

MINUTE_MS = 60_000


async def test_a_refusal_keeps_the_list_and_is_shown() -> None:
    for error in (Unauthenticated("Who is there?"), Forbidden("Not you.")):
        async with Scene() as scene:
            await scene.send(snapshot("a"))
            await scene.clock.advance(5_000)
            scene.source.refusals[ONE] = [error]
            scene.stream.cut()
            await scene.clock.advance(500)
            assert scene.names() == ["a"]
            assert not scene.complete()
            assert scene.follower.last_error is error
            await scene.clock.advance(1_000)
            await scene.send(snapshot("a", "b"))
            assert scene.names() == ["a", "b"]
            assert scene.follower.last_error is None


async def test_a_watch_that_is_ended_for_its_credentials_is_begun_again_with_those_of_then() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a"))
        await scene.clock.advance(5_000)
        await scene.send(event("closing", reason="unauthorized"))
        await scene.clock.advance(500)
        assert scene.source.attempts == [ONE, ONE]
        await scene.send(snapshot("a"))
        assert scene.complete()


async def test_a_service_that_refuses_for_good_is_not_asked_in_a_hot_loop() -> None:
    refusals: list[PoolmusterError] = [Unauthenticated("No.") for _ in range(1_000)]
    async with Scene(refusals={ONE: refusals}) as scene:
        await scene.clock.advance(10 * MINUTE_MS)
        assert len(scene.source.attempts) < 80


async def test_a_service_that_ends_each_watch_as_unauthorized_is_not_asked_in_a_hot_loop() -> None:
    async with Scene() as scene:
        for _ in range(200):
            if scene.source.streams and scene.stream.open:
                await scene.send(snapshot("a"), event("closing", reason="unauthorized"))
            await scene.clock.advance(MINUTE_MS // 20)
        assert len(scene.source.attempts) < 80
        assert scene.names() == ["a"]
