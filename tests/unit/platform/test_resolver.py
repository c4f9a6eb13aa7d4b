"""Names are resolved without holding anybody up."""

import asyncio
import socket
import threading
import time
from typing import Any

import aiohttp
import pytest

from poolmuster.platform.resolver import Resolver


async def test_a_name_has_its_addresses() -> None:
    found = await Resolver().resolve("localhost", 80, socket.AF_INET)
    assert {(each["hostname"], each["host"], each["port"], each["family"]) for each in found} == {
        ("localhost", "127.0.0.1", 80, socket.AF_INET)
    }


async def test_a_name_without_addresses_is_an_error_that_aiohttp_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    connector = aiohttp.TCPConnector(resolver=Resolver())
    async with aiohttp.ClientSession(connector=connector) as session:
        with pytest.raises(aiohttp.ClientConnectorDNSError, match="not known"):
            await session.get("http://nowhere.invalid/")


def test_a_resolver_that_hangs_holds_neither_its_caller_nor_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: go_on.wait(20) and [])

    async def main() -> None:
        connector = aiohttp.TCPConnector(resolver=Resolver())
        async with aiohttp.ClientSession(connector=connector) as session:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await session.get("http://silent.invalid/")

    started_s = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - started_s < 10
    go_on.set()
