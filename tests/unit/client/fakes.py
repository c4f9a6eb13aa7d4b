"""A watch under a test's control: streams that are fed, cut and refused by hand."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from poolmuster.client.follow import Follower
from poolmuster.client.settings import ClientSettings
from poolmuster.client.subscription import Subscription, Update
from poolmuster.client.watch import WatchStream
from poolmuster.model.errors import PoolmusterError
from tests.support.clock import ManualClock

ONE, TWO = "http://one", "http://two"


def pool(name: str, **facts: Any) -> dict[str, Any]:
    """A listed pool."""
    return {"cluster_id": "c", "namespace": "n", "dgd_name": name, **facts}


def pool_key(name: str) -> dict[str, Any]:
    """The key of `pool`, as events have it."""
    return {"cluster_id": "c", "namespace": "n", "dgd_name": name}


def event(kind: str, number: int = 1, boot: str = "b", **members: Any) -> dict[str, Any]:
    """One event of the watch."""
    return {"type": kind, "revision": f"{boot}.{number}", "id": f"{boot}.{number}.f", **members}


def snapshot(*names: str, complete: bool = True, number: int = 1, boot: str = "b") -> dict[str, Any]:
    """A snapshot of pools of these names."""
    return event("snapshot", number, boot, pools=[pool(name) for name in names], complete=complete, sources=[])


class Stream:
    """One connection that the follower opened."""

    def __init__(self, url: str, last_event_id: str | None) -> None:
        self.url = url
        self.last_event_id = last_event_id
        self.open = True
        self._queue: asyncio.Queue[bytes | PoolmusterError | None] = asyncio.Queue()

    def send(self, *events: dict[str, Any]) -> None:
        """Whole lines."""
        for each in events:
            self.raw(json.dumps(each).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._queue.put_nowait(data)

    def cut(self, error: PoolmusterError | None = None) -> None:
        """End, in good order or by ``error``."""
        self._queue.put_nowait(error)

    async def chunks(self) -> AsyncIterator[bytes]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, PoolmusterError):
                raise item
            yield item


class FakeSource:
    """Opens watches, and keeps every stream it opened; ``refusals`` are raised in turn."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.attempts: list[str] = []
        self.refusals: dict[str, list[PoolmusterError]] = {}
        self.revision: str | None = None

    @asynccontextmanager
    async def open(self, url: str, last_event_id: str | None) -> AsyncIterator[WatchStream]:
        self.attempts.append(url)
        if self.refusals.get(url):
            raise self.refusals[url].pop(0)
        stream = Stream(url, last_event_id)
        self.streams.append(stream)
        try:
            yield WatchStream(stream.chunks(), self.revision)
        finally:
            stream.open = False


class FixedChance(random.Random):
    """Chance that always falls on the same place between its bounds."""

    def __init__(self, place: float) -> None:
        super().__init__()
        self._place = place

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._place


class Scene:
    """A follower that runs on a manual clock against a `FakeSource`."""

    def __init__(
        self, *urls: str, chance: float = 1.0, refusals: dict[str, list[PoolmusterError]] | None = None, **settings: Any
    ) -> None:
        self.clock = ManualClock()
        self.source = FakeSource()
        self.source.refusals = refusals or {}
        self.follower = Follower(
            self.source.open, ClientSettings(urls=urls or (ONE,), **settings), self.clock, FixedChance(chance)
        )
        self.updates: Subscription = self.follower.updates()

    async def __aenter__(self) -> Self:
        self.running = asyncio.create_task(self.follower.run())
        await self.clock.settle()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])

    @property
    def stream(self) -> Stream:
        """The latest stream."""
        return self.source.streams[-1]

    async def send(self, *events: dict[str, Any]) -> None:
        """Send on the latest stream, and let the follower take it in."""
        self.stream.send(*events)
        await self.clock.settle()

    def complete(self) -> bool:
        """Whether the follower holds its list for complete."""
        return self.follower.complete

    def names(self) -> list[str]:
        """The pools of the mirror."""
        return [key.dgd_name for key in self.follower.pools]

    def usable(self) -> dict[str, bool]:
        """The usable set: name to confirmed."""
        return {key.dgd_name: each.confirmed for key, each in self.follower.usable.items()}

    def drain(self, wanted: Callable[[Update], bool] = lambda _: True) -> list[Update]:
        """The updates so far."""
        return [update for update in self.updates.take_all() if wanted(update)]
