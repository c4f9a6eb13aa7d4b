"""A watcher of a real service that notes when it was told what."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from tests.support.streams import read_ndjson


class Told(msgspec.Struct, frozen=True):
    """One event, and when it came, by the wall clock in ms."""

    event: dict[str, Any]
    at_ms: int

    @property
    def type(self) -> str:
        kind: str = self.event["type"]
        return kind


class Watcher:
    """What a watch told so far, pings left out."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._news = asyncio.Event()

    async def run(self, session: aiohttp.ClientSession, url: str) -> None:
        """Read the watch until it is cut."""
        async with session.get(f"{url}/pools/watch", headers={"Accept": "application/x-ndjson"}) as answer:
            assert answer.status == 200
            data = b""
            async for chunk in answer.content.iter_any():
                data += chunk
                whole, _, data = data.rpartition(b"\n")
                events = read_ndjson(whole + b"\n") if whole else []
                now_ms = time.time_ns() // 1_000_000
                self.told += [Told(event, now_ms) for event in events if event["type"] != "ping"]
                self._news.set()

    async def wait(self, wanted: Callable[[Told], bool], timeout_s: float = 20.0, since: int = 0) -> Told:
        """The first event, from number ``since`` on, that is ``wanted``."""
        async with asyncio.timeout(timeout_s):
            while True:
                self._news.clear()
                for told in self.told[since:]:
                    if wanted(told):
                        return told
                await self._news.wait()

    async def wait_type(self, kind: str, timeout_s: float = 20.0, since: int = 0) -> Told:
        """The first event of a type."""
        return await self.wait(lambda told: told.type == kind, timeout_s, since)

    @property
    def movements(self) -> list[str]:
        """Types of the events about pools, in order."""
        return [told.type for told in self.told if told.type in ("added", "changed", "removed")]


@asynccontextmanager
async def watching(url: str) -> AsyncIterator[Watcher]:
    """A watcher of the service at ``url`` that has its snapshot."""
    watcher = Watcher()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        task = asyncio.create_task(watcher.run(session, url))
        try:
            await watcher.wait_type("snapshot")
            yield watcher
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError):
                await task
