"""A network in this process between real stores with peers: names, cuts, and whatever else may be the matter."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from poolmuster.model.source import SourceInfo
from poolmuster.ports.clock import Clock
from poolmuster.sources.peers.dns import ServiceName
from poolmuster.sources.peers.errors import PeerRefused
from poolmuster.sources.peers.instrumentation import PeerInstrumentation
from poolmuster.sources.peers.node import PeerSettings
from poolmuster.sources.peers.store import PeerStore
from poolmuster.sources.peers.transport import FEED_PATH, LIST_PATH, STREAM_PATH, PeerAddress, PeerResponse
from tests.support.catalog import CatalogWorld
from tests.support.clock import ManualClock
from tests.support.registrations import deregistration, registration

LEASE_MS, HEARTBEAT_MS = 15_000, 5_000
NAME = ServiceName("peers.test", 80)
SETTLE_TURNS = 200
Behaviour = Callable[[str], AsyncGenerator[bytes, None]]


class Skewed:
    """A clock hours off another, with a wall clock of its own as well."""

    def __init__(self, clock: ManualClock, by_ms: int) -> None:
        self._clock = clock
        self._by_ms = by_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() + self._by_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms() - self._by_ms

    async def sleep_ms(self, duration_ms: float) -> None:
        await self._clock.sleep_ms(duration_ms)


class Net:
    """Who is where. ``silent`` addresses take connections and say nothing."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.named: set[str] = set()
        self.resolver_trouble: Exception | None = None
        self.resolver_hangs = False
        self.hosts: dict[str, Node] = {}
        self.silent: set[str] = set()
        self.trouble: dict[str, Exception] = {}
        self.behaviour: dict[str, Behaviour] = {}
        self.no_streams: set[str] = set()
        self.balanced: dict[str, list[str]] = {}
        self.asked: list[tuple[str, str]] = []
        self.open = 0
        self._healed = asyncio.Event()
        self._chance = random.Random(1)
        self.alternates = False
        """Whether connections of one instance to a balanced address lead to those behind it in turn, not at random."""
        self._connections: Counter[str] = Counter()

    async def settle(self) -> None:
        await self.clock.settle(SETTLE_TURNS)

    async def advance(self, by_ms: int) -> None:
        """Let time pass in small steps, everything done in each."""
        for _ in range(by_ms // 50):
            await self.clock.advance(50)
            await self.settle()

    def cut(self, address: str) -> None:
        self.silent.add(address)
        self._healed.clear()

    def heal(self) -> None:
        self.silent.clear()
        self._healed.set()

    async def pass_through(self, *addresses: str) -> None:
        while any(address in self.silent for address in addresses):
            await self._healed.wait()

    def target(self, address: str, own: str) -> str:
        """Where a connection from ``own`` to ``address`` leads."""
        behind = self.balanced.get(address)
        if not behind:
            return address
        if self.alternates:
            self._connections[own] += 1
            return behind[self._connections[own] % len(behind)]
        return self._chance.choice(behind)


async def _pieces(lines: AsyncGenerator[bytes, None], through: Callable[[], Any]) -> AsyncIterator[bytes]:
    """The body of a response of another store of this process."""
    async for line in lines:
        await through()
        # In two pieces, as a network is free to.
        yield line[: len(line) // 2]
        yield line[len(line) // 2 :]


class FakeNetwork:
    """`PeerTransport` of the instance at ``own``."""

    def __init__(self, net: Net, own: str) -> None:
        self._net = net
        self._own = own
        self.requests: list[tuple[int, PeerAddress, str]] = []
        """Time, peer and path of each; the peer's address is one of the name, whoever is behind it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert kind is None or self._net.open >= 0

    async def resolve(self, name: ServiceName) -> frozenset[str]:
        net = self._net
        if net.resolver_hangs:
            await asyncio.Event().wait()
        if net.resolver_trouble is not None:
            raise net.resolver_trouble
        return frozenset(net.named)

    @asynccontextmanager
    async def request(
        self, peer: PeerAddress, path: str, after: tuple[str, int] = ("", 0), *, head: bool = False
    ) -> AsyncIterator[PeerResponse]:
        net = self._net
        address = net.target(peer.address, self._own)
        net.asked.append((address, "who" if head else path))
        self.requests.append((net.clock.monotonic_ms(), peer, "who" if head else path))
        net.open += 1
        try:
            await net.pass_through(address, self._own)
            if (trouble := net.trouble.get(address)) is not None:
                raise trouble
            if path == STREAM_PATH and address in net.no_streams:
                await asyncio.Event().wait()
            if (behaviour := net.behaviour.get(address)) is not None:
                async with aclosing(behaviour(path)) as lines:
                    yield PeerResponse("behaved", _pieces(lines, lambda: net.pass_through(address, self._own)))
                return
            if (node := net.hosts.get(address)) is None:
                raise PeerRefused
            lines = _lines(node, path, after)
            async with aclosing(lines):
                pieces = _pieces(node.until_dead(lines), lambda: net.pass_through(address, self._own))
                yield PeerResponse(node.boot_id, pieces)
        finally:
            net.open -= 1


def _lines(node: "Node", path: str, after: tuple[str, int]) -> AsyncGenerator[bytes, None]:
    sharing = node.store.replication_feed
    if path == LIST_PATH:
        return sharing.snapshot()
    return sharing.delta(*after) if path == FEED_PATH else sharing.follow(*after)


class Node:
    """One instance on the net, at ``address``."""

    def __init__(
        self, net: Net, address: str, boot_id: str, *, skew_ms: int = 0, expect: int = 0, **settings: Any
    ) -> None:
        self.net = net
        self.address = address
        self.boot_id = boot_id
        self.clock: Clock = Skewed(net.clock, skew_ms)
        self.notes = CountingNotes()
        self.network = FakeNetwork(net, address)
        self.world: CatalogWorld[PeerStore] = CatalogWorld(
            self.clock,
            lambda clock, lease_clock, policy: PeerStore(
                transport=self.network,
                clock=clock,
                lease_clock=lease_clock,
                boot_id=boot_id,
                settings=PeerSettings(names=(NAME,), policy=policy, expect=expect, **settings),
                instrumentation=self.notes,
            ),
            boot_id=boot_id,
        )
        self.store, self.catalog, self.changes = self.world.store, self.world.catalog, self.world.changes
        self._dead = asyncio.Event()

    async def start(self) -> Self:
        self.net.hosts[self.address] = self
        self.net.named.add(self.address)
        self.world.start()
        await self.net.settle()
        return self

    async def kill(self) -> None:
        """Its connections break, and whoever comes is refused."""
        if self.net.hosts.get(self.address) is self:
            del self.net.hosts[self.address]
        self._dead.set()
        await self.world.stop()
        await self.net.settle()

    async def until_dead(self, lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        dead = asyncio.create_task(self._dead.wait())
        try:
            while True:
                following: asyncio.Task[bytes] = asyncio.ensure_future(anext(lines))
                try:
                    await asyncio.wait((dead, following), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not following.done():
                        following.cancel()
                        await asyncio.gather(following, return_exceptions=True)
                if dead.done() or isinstance(following.exception(), StopAsyncIteration):
                    return
                yield following.result()
        finally:
            dead.cancel()

    async def put(self, name: str = "a", relay_id: str | None = "r", **facts: Any) -> None:
        await self.store.put(registration(name, relay_id, **facts))
        await self.net.settle()

    async def leave(self, name: str = "a", relay_id: str | None = None) -> None:
        await self.store.deregister(deregistration(name, relay_id))
        await self.net.settle()

    @property
    def running(self) -> bool:
        return not any(task.done() for task in self.world.tasks)

    @property
    def listed(self) -> list[str]:
        return self.world.listed

    @property
    def complete(self) -> bool:
        return self.catalog.completeness().complete

    @property
    def troubles(self) -> dict[str, str]:
        """The sources that are not fresh, and why."""
        return {source.name: str(source.reason) for source in self.sources.values() if source.reason is not None}

    @property
    def sources(self) -> dict[str, SourceInfo]:
        return {source.name: source for source in self.catalog.completeness().sources}


class CountingNotes(PeerInstrumentation):
    """What metrics would count."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.outcomes: list[str] = []
        self.skipped_entries = 0
        self.lags_ms: list[int] = []

    def message(self, direction: str, kind: str, size_bytes: int) -> None:
        self.messages.append((direction, kind))

    def read_ended(self, outcome: str) -> None:
        self.outcomes.append(outcome)

    def skipped(self, count: int) -> None:
        self.skipped_entries += count

    def renewal_came(self, after_ms: int) -> None:
        self.lags_ms.append(after_ms)


@asynccontextmanager
async def nodes(count: int, **terms: Any) -> AsyncIterator[tuple[Net, list[Node]]]:
    """Instances that know each other, none of them complete yet; all are ended at the end."""
    net = Net()
    async with AsyncExitStack() as stack:
        net.named.update(f"10.0.0.{number}:80" for number in range(1, count + 1))
        found = [
            Node(net, f"10.0.0.{number}:80", f"boot{number}", skew_ms=number * 3_600_000, **terms)
            for number in range(1, count + 1)
        ]
        for node in found:
            stack.push_async_callback(node.kill)
            await node.start()
        await net.advance(1_000)
        yield net, found
        for node in list(net.hosts.values()):
            await node.kill()
        net.heal()
        await net.settle()
        assert net.open == 0, "no connection outlives its instance"
