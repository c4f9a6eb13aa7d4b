"""Relays without a process: each renews one pool every heartbeat, at an instance that the test may change."""

import asyncio
import contextlib
import random
from types import TracebackType
from typing import Any, Self

import aiohttp

from tests.support.instances import Server


class Fleet:
    """All relays of a test. An attempt that fails is made again with the next heartbeat."""

    def __init__(self, every_s: float, attempt_s: float | None = None) -> None:
        self.every_s = every_s
        self.attempt_s = attempt_s if attempt_s is not None else every_s
        self.places: dict[str, Server] = {}
        """Where each pool is registered."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(*self._tasks)

    def join(self, at: Server, *names: str, **facts: Any) -> None:
        """Register these pools at ``at``, and go on renewing them."""
        for name in names:
            self.places[name] = at
            self._tasks[name] = asyncio.create_task(self._run(name, facts))

    async def stop(self, *names: str) -> None:
        """These say no more, and do not say that they leave."""
        tasks = [self._tasks.pop(name) for name in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self, name: str, at: Server | None = None) -> None:
        """Deregister as a relay that stops."""
        await self.stop(name)
        status = await (at or self.places[name]).leave(name, f"?relay_id={self.relay_id(name)}&reason=relay_stopping")
        assert status == 204, status

    @staticmethod
    def relay_id(name: str) -> str:
        return f"relay-{name}"

    async def _run(self, name: str, facts: dict[str, Any]) -> None:
        if len(self._tasks) > 1:
            await asyncio.sleep(random.random() * self.every_s)
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with asyncio.timeout(self.attempt_s):
                    await self.places[name].register(name, relay_id=self.relay_id(name), **facts)
            await asyncio.sleep(self.every_s)
