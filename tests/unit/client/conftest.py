"""What the client's tests share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest
from aiohttp import web

from tests.unit.client.server import OVER, Server

T = TypeVar("T")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app[OVER] = asyncio.Event()
    app.router.add_route("*", "/{rest:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = str(site.name)
    yield server
    app[OVER].set()
    await runner.cleanup()


@pytest.fixture(autouse=True)
def files_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a thread, which no clock of a test waits for."""

    async def at_once(_name: str, work: Callable[[], T]) -> T:
        return work()

    monkeypatch.setattr("poolmuster.client.credentials.run_in_daemon_thread", at_once)
