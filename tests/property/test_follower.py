"""C23: a follower's mirror equals the service's list at every quiet point, whatever was cut, stopped or restarted.

The follower and the service are the real ones, on one manual clock; only the sockets between them are not.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from poolmuster.client.errors import Unreachable
from poolmuster.client.follow import Follower
from poolmuster.client.settings import ClientSettings
from poolmuster.client.watch import WatchStream
from tests.support.clock import ManualClock
from tests.support.service import Service, Stream, pools_of

NAMES = "abcde"
FILTER = "?label=kept"
POLL_MS = 50

steps = st.one_of(
    st.tuples(st.just("register"), st.sampled_from(NAMES), st.integers(0, 2)),
    st.tuples(st.just("deregister"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("pass"), st.just(""), st.sampled_from([10, 1_000, 6_000, 16_000])),
    st.tuples(st.just("cut"), st.just(""), st.just(0)),
    st.tuples(st.just("restart"), st.just(""), st.just(0)),
    st.tuples(st.just("mute"), st.just(""), st.just(0)),
)


class World:
    """One service that may be replaced by a fresh one, and a follower of the pools with one label."""

    def __init__(self, seed: int) -> None:
        self.clock = ManualClock()
        self.chance = random.Random(seed)
        self.boots = 0
        self.service = self._fresh()
        self.stream: Stream | None = None
        self.muted = False
        self.follower = Follower(self.open, ClientSettings(urls=("http://service",)), self.clock, self.chance)

    def _fresh(self) -> Service:
        self.boots += 1
        return Service(self.clock, boot_id=f"boot{self.boots}")

    @asynccontextmanager
    async def open(self, url: str, last_event_id: str | None) -> AsyncIterator[WatchStream]:
        stream = self.stream = await self.service.watch(FILTER, last_event_id, sse=False)
        self.muted = False
        try:
            yield WatchStream(self._chunks(stream), stream.headers.get("poolmuster-revision"))
        finally:
            stream.cut()

    async def _chunks(self, stream: Stream) -> AsyncIterator[bytes]:
        read = 0
        while True:
            data = bytes(stream.data[read:])
            if data and not self.muted:
                # Cut anywhere, also in the middle of a line.
                size = self.chance.randint(1, len(data))
                read += size
                yield data[:size]
            elif stream.ended:
                raise Unreachable("cut")
            else:
                await self.clock.sleep_ms(POLL_MS)

    async def act(self, what: str, name: str, number: int) -> None:
        match what:
            case "register":
                await self.service.register(name, weight=number, labels={"kept": "yes"} if number < 2 else {})
            case "deregister":
                await self.service.leave(name)
            case "pass":
                await self.clock.advance(number)
            case "cut" if self.stream is not None:
                self.stream.cut()
            case "mute":
                self.muted = True
            case "restart":
                await self.service.kill()
                self.service = self._fresh()
                await self.service.__aenter__()

    async def check(self) -> None:
        """The mirror is the list, unless the follower itself says that it does not hear the service."""
        await self.clock.advance(4 * POLL_MS)
        if self.muted or self.follower.connected_url is None:
            return
        answer = await self.service.get("/pools" + FILTER)
        assert self.follower.pools_json == pools_of(answer)
        assert self.follower.complete == answer.json["complete"]
        assert set(self.follower.pools) <= set(self.follower.usable)
        if self.follower.complete:
            assert set(self.follower.pools) == set(self.follower.usable)


async def play(script: list[tuple[str, str, int]], seed: int) -> None:
    world = World(seed)
    async with world.service:
        running = asyncio.create_task(world.follower.run())
        await world.clock.advance(1_000)
        for step in script:
            await world.act(*step)
            await world.check()
        await world.clock.advance(45_000)
        assert world.follower.connected_url is not None
        await world.check()
        running.cancel()
        await asyncio.wait([running])
        await world.service.kill()


@settings(max_examples=40)
@given(st.lists(steps, max_size=15), st.integers(0, 1_000))
def test_the_mirror_equals_the_list_at_every_quiet_point(script: list[tuple[str, str, int]], seed: int) -> None:
    asyncio.run(play(script, seed))
