"""The whole system in one thread on a virtual clock, disturbed in every way.

Relays, a network that loses, a service that restarts and stops, clocks that step, clients that follow. The seed is
printed; ``POOLMUSTER_SEED`` tries one again, and ``POOLMUSTER_EXAMPLES`` says how many are tried.

What must hold at every moment:

- a list that calls itself complete has every live pool;
- a dead pool is gone one lease after the service last heard of it, pauses left out, and one tick;
- what a client uses never lacks a pool that has been live all along;
- while nothing is lost, an update of a relay shows watchers nothing.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from poolmuster.client.errors import Unreachable
from poolmuster.client.follow import Follower
from poolmuster.client.settings import ClientSettings
from poolmuster.client.watch import WatchStream
from poolmuster.platform.lease_clock import PAUSE_MS
from poolmuster.relay.heartbeat import (
    Deregister,
    Heartbeat,
    HeartbeatAccepted,
    HeartbeatFailed,
    HeartbeatGone,
    HeartbeatRefused,
    Outcome,
    Register,
    Superseded,
    Wait,
    terms_of,
)
from poolmuster.service.expiry import TICK_MS as TIMER_MS
from tests.support.clock import ManualClock
from tests.support.registrations import body, key
from tests.support.service import LEASE_MS, Answer, Service
from tests.support.variables import variable

RUNS = max(1, int(variable("EXAMPLES", "60")) // 20)
SEEDS = [int(variable("SEED"))] if variable("SEED") else list(range(RUNS))
LENGTH_MS = 240_000
TICK_MS = 200
STEADY_MS = 25_000
"""How long a pool must have been live before clients are held to it."""

SLACK_MS = 10_000
HOUR_MS = 3_600_000


class HostClock(ManualClock):
    """The service's host: its wall clock steps by itself, and while it is stopped nothing on it wakes."""

    def __init__(self, world: ManualClock) -> None:
        super().__init__()
        self._world = world
        self._wall_offset_ms = 0
        self.running = asyncio.Event()
        self.running.set()

    def monotonic_ms(self) -> int:
        return self._world.monotonic_ms()

    def wall_ms(self) -> int:
        return self._world.wall_ms() + self._wall_offset_ms

    def step_wall(self, by_ms: int) -> None:
        self._wall_offset_ms += by_ms

    async def sleep_ms(self, duration_ms: float) -> None:
        await self._world.sleep_ms(duration_ms)
        await self.running.wait()

    async def settle(self, turns: int = 20) -> None:
        await self._world.settle(turns)


class Truth:
    """What the service was really told of each pool, whether the relay knows it or not."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.heard_ms: dict[str, int] = {}
        self.heard_by: dict[str, Service] = {}
        self.live_since_ms: dict[str, int] = {}
        self.pauses: list[tuple[int, int]] = []
        """When each pause of the service began, and how long it was."""

    def heard(self, name: str, service: Service) -> None:
        if not self.live(name):
            self.live_since_ms[name] = self._clock.monotonic_ms()
        self.heard_ms[name] = self._clock.monotonic_ms()
        self.heard_by[name] = service

    def left(self, name: str) -> None:
        self.heard_ms.pop(name, None)

    def silent_ms(self, name: str, spare_ms: int = 0) -> int:
        """How long it was not heard of, the pauses of the service left out, with something to spare for each."""
        heard_ms = self.heard_ms[name]
        paused_ms = sum(
            length_ms + spare_ms for began_ms, length_ms in self.pauses if began_ms >= heard_ms and length_ms > PAUSE_MS
        )
        return self._clock.monotonic_ms() - heard_ms - paused_ms

    def live(self, name: str) -> bool:
        """Whether it was heard of within the last lease."""
        return name in self.heard_ms and self.silent_ms(name) < LEASE_MS

    def steady(self, name: str) -> bool:
        return self.live(name) and self._clock.monotonic_ms() - self.live_since_ms[name] >= STEADY_MS


class Relay:
    """One relay: the heartbeat's rules, and a task that does what they say over a network that loses."""

    def __init__(self, world: "World", name: str, relay_id: str) -> None:
        ids = itertools.count()
        self._world = world
        self.name = name
        self.heart = Heartbeat(1, new_id=lambda: f"{relay_id}.{next(ids)}", rng=world.chance.random)
        self.heart.set_document(world.clock.monotonic_ms(), body(name))
        self.task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """SIGTERM."""
        self.heart.leave(self._world.clock.monotonic_ms())

    def kill(self) -> None:
        """SIGKILL."""
        self.task.cancel()

    async def _run(self) -> None:
        clock = self._world.clock
        while True:
            step = self.heart.next(clock.monotonic_ms())
            if isinstance(step, Wait):
                until_ms = clock.monotonic_ms() + TICK_MS if step.until_ms is None else step.until_ms
                await clock.sleep_ms(min(until_ms - clock.monotonic_ms(), TICK_MS))
                continue
            self.heart.ended(clock.monotonic_ms(), await self._send(step))

    async def _send(self, step: Register | Deregister) -> Outcome:
        """Ask; an answer that does not come in time is none, though the request may still be heard."""
        world = self._world
        request = asyncio.create_task(world.deliver(self.name, step))
        world.in_flight.add(request)
        request.add_done_callback(world.in_flight.discard)
        give_up_ms = world.clock.monotonic_ms() + step.timeout_ms
        while not request.done() and world.clock.monotonic_ms() < give_up_ms:
            await world.clock.sleep_ms(20)
        if not request.done() or (answer := request.result()) is None:
            return HeartbeatFailed("nothing came back")
        match answer.status:
            case 200 | 201:
                lease = answer.json["lease"]
                terms = terms_of(lease["duration_ms"], lease["heartbeat_interval_ms"])
                return HeartbeatAccepted(terms, created=answer.status == 201, conflict=answer.json["conflict"])
            case 204:
                return HeartbeatGone()
            case 409:
                return Superseded("left")
            case status:
                return HeartbeatRefused(status, "no")


class World:
    """Everything there is, and what has to hold of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.host = HostClock(self.clock)
        self.truth = Truth(self.clock)
        self.loss = 0.0
        self.service: Service | None = None
        self.relays: dict[str, Relay] = {}
        self.in_flight: set[asyncio.Task[Answer | None]] = set()
        self.followers: list[Follower] = []
        self.removed: list[str] = []
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []

    async def start_service(self) -> None:
        self.service = Service(self.host, boot_id=f"boot{next(self._numbers)}")
        await self.service.__aenter__()

    async def kill_service(self) -> None:
        service, self.service = self.service, None
        if service is not None:
            await service.kill()

    def follow(self) -> None:
        settings = ClientSettings(urls=("http://service",))
        follower = Follower(self.open, settings, self.clock, self.chance)
        self.followers.append(follower)
        self._tasks.append(asyncio.create_task(follower.run()))

    @asynccontextmanager
    async def open(self, url: str, last_event_id: str | None) -> AsyncIterator[WatchStream]:
        """A watch in this process (`poolmuster.client.watch.OpenWatch`)."""
        service = self.service
        if service is None:
            raise Unreachable("The service is down.")
        await self.host.running.wait()
        stream = await service.watch(last_id=last_event_id, sse=False)

        async def chunks() -> AsyncIterator[bytes]:
            taken = 0
            while True:
                ended = stream.ended
                if len(stream.data) > taken:
                    chunk = bytes(stream.data[taken:])
                    taken += len(chunk)
                    yield chunk
                if ended:
                    return
                await self.clock.sleep_ms(20)

        try:
            yield WatchStream(chunks())
        finally:
            stream.cut()

    def start_relay(self, name: str) -> Relay:
        relay = self.relays[name] = Relay(self, name, f"relay{next(self._numbers)}")
        return relay

    async def deliver(self, name: str, step: Register | Deregister) -> Answer | None:
        """One request over the network: lost on its way, heard but not answered, or both well."""
        if self.chance.random() < self.loss:
            return None
        await self.host.running.wait()
        service = self.service
        if service is None:
            return None
        if isinstance(step, Register):
            answer = await service.register(name, relay_id=step.relay_id)
            if answer.status != 409:
                self.truth.heard(name, service)
        else:
            listed = service.instance.catalog.pools.get(key(name)) is not None
            answer = await service.leave(name, query=f"?relay_id={step.relay_id}")
            if listed and service.instance.catalog.pools.get(key(name)) is None:
                self.truth.left(name)
        return None if self.chance.random() < self.loss else answer

    async def pass_time(self, by_ms: int) -> None:
        """Let time pass, with a look at everything each tick."""
        for _ in range(by_ms // TICK_MS):
            await self.clock.advance(TICK_MS)
            if self.host.running.is_set():
                await self._check_service()
            self._check_clients()

    async def _check_service(self) -> None:
        if self.service is None:
            return
        found = (await self.service.get()).json
        listed = {pool["dgd_name"] for pool in found["pools"]}
        live = {name for name in self.truth.heard_ms if self.truth.live(name)}
        if found["complete"]:
            assert live <= listed, "complete without a live pool"
        assert {name for name in live if self.truth.heard_by[name] is self.service} <= listed, "a live pool was lost"
        for name in listed:
            assert name in self.truth.heard_ms, "listed, though it left"
            assert self.truth.silent_ms(name, TICK_MS + TIMER_MS) < LEASE_MS + TICK_MS, "listed, though it is long dead"

    def _check_clients(self) -> None:
        for follower in self.followers:
            used = {each.dgd_name for each in follower.usable}
            steady = {name for name in self.truth.heard_ms if self.truth.steady(name)}
            if follower.has_list and self.clock.monotonic_ms() - 1_000_000 >= STEADY_MS:
                assert steady <= used, "a client lost a pool that lives"

    async def pause(self, by_ms: int) -> None:
        self.host.running.clear()
        began_ms = self.clock.monotonic_ms()
        await self.pass_time(by_ms)
        self.truth.pauses.append((began_ms, by_ms))
        self.host.running.set()
        if self.service is not None and by_ms > SLACK_MS:
            assert not (await self.service.get()).json["complete"], "it cannot know what it missed"
        await self.clock.settle()

    async def end(self) -> None:
        tasks = [*self._tasks, *self.in_flight, *(relay.task for relay in self.relays.values())]
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        await self.kill_service()


async def disturb(world: World) -> None:
    """Something happens."""
    chance = world.chance
    name = chance.choice("abcdef")
    match chance.randrange(8):
        case 0:
            await world.kill_service()
            await world.pass_time(chance.choice([200, 2_000, 8_000]))
            await world.start_service()
        case 1:
            await world.pause(chance.choice([800, 4_000, 12_000, 60_000]))
        case 2:
            world.host.step_wall(chance.choice([-HOUR_MS, HOUR_MS]))
        case 3:
            world.relays[name].kill()
            await world.pass_time(chance.choice([400, 20_000]))
            world.start_relay(name)
        case 4:
            world.relays[name].stop()
            await world.pass_time(4_000)
            world.relays[name].kill()
            world.start_relay(name)
        case 5:
            world.loss = chance.choice([0.0, 0.1, 0.3])
        case _:
            await world.pass_time(10_000)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_that_must_hold_is_broken_whatever_happens(seed: int) -> None:
    print(f"seed {seed}")
    world = World(seed)
    try:
        await world.start_service()
        for name in "abcdef":
            world.start_relay(name)
        for _ in range(2):
            world.follow()
        end_ms = world.clock.monotonic_ms() + LENGTH_MS
        while world.clock.monotonic_ms() < end_ms:
            await disturb(world)
            await world.pass_time(world.chance.choice([200, 2_000, 20_000]))
        world.loss = 0.0
        await world.pass_time(60_000)
        for follower in world.followers:
            assert follower.complete
            assert {each.dgd_name for each in follower.pools} == set("abcdef")
    finally:
        await world.end()


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
async def test_an_update_of_a_relay_shows_watchers_nothing_while_nothing_is_lost(seed: int) -> None:
    world = World(seed)
    try:
        await world.start_service()
        assert world.service is not None
        world.start_relay("a")
        await world.pass_time(20_000)
        stream = await world.service.watch(sse=False)
        for _ in range(8):
            old, new = world.relays["a"], world.start_relay("a")
            await world.pass_time(world.chance.randrange(200, 12_000, 200))
            assert new.heart.listed(world.clock.monotonic_ms())
            old.stop()
            await world.pass_time(world.chance.choice([200, 1_000, 5_000]))
            old.kill()
            with contextlib.suppress(asyncio.CancelledError):
                await old.task
            await world.pass_time(world.chance.choice([200, 20_000]))
        kinds = {event["type"] for event in stream.events}
        assert kinds <= {"snapshot", "ping", "completeness"}
    finally:
        await world.end()
