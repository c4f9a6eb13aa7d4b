"""A first read of many pools on a real server: no answer is called complete before it holds all of them."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.support.fault_proxy import Answer, FaultProxy, fault_proxy
from tests.support.instances import Server, instance
from tests.support.registrations import registration
from tests.support.table_server import Table, live_attributes

pytestmark = pytest.mark.integration

POOLS = 20_000
LEASE_S = 600
COMPLETE_S = 60.0
PAUSE_S = 0.05


@pytest.fixture
async def full(table: Table) -> AsyncIterator[FaultProxy]:
    """A proxy in front of a table with so many pools.

    It has read the server's pages beforehand: on a busy machine ministack takes longer for them than a read has, as no
    real table does.
    """
    ends_ms = int(time.time() * 1000) + LEASE_S * 1000
    items = [
        live_attributes(registration(f"{number}"), ends_ms=ends_ms, lease_ms=1, writer="-/b") for number in range(POOLS)
    ]
    needed = ("pk", "sk", "registration", "lease_ends_ms")
    await asyncio.to_thread(table.put_all, ({name: item[name] for name in needed} for item in items))
    pages: dict[str, Any] = {}
    start = None
    for page in await asyncio.to_thread(table.query):
        pages[repr(start)], start = page, page.get("LastEvaluatedKey")
    assert len(pages) > 1
    async with fault_proxy(table.server.url) as proxy:
        proxy.decide = lambda call: Answer(200, pages[repr(call.request.get("ExclusiveStartKey"))])
        yield proxy


async def answers(server: Server, path: str) -> AsyncIterator[tuple[int, bytes]]:
    """Each answer to ``path``, asked for one after the other without end."""
    while True:
        async with server.session.get(path) as response:
            yield response.status, await response.read()
        await asyncio.sleep(PAUSE_S)


class ListBody(msgspec.Struct):
    """What counts here of a list or a snapshot."""

    pools: list[msgspec.Raw]
    complete: bool


async def list_until_complete(server: Server) -> list[int]:
    """The statuses of ``GET /pools`` until a list is complete, which then holds all pools."""
    statuses: list[int] = []
    async for status, body in answers(server, "/pools"):
        statuses.append(status)
        if status == 200:
            found = msgspec.json.decode(body, type=ListBody)
            if found.complete:
                assert len(found.pools) == POOLS
                return statuses
        else:
            assert status == 503
    raise AssertionError


async def ready_until_complete(server: Server) -> list[int]:
    """The statuses of ``GET /health/ready`` until it is 200, when there is a list that is complete only if whole."""
    statuses: list[int] = []
    async for status, _ in answers(server, "/health/ready"):
        statuses.append(status)
        if status == 200:
            async with server.session.get("/pools") as response:
                assert response.status == 200
                found = msgspec.json.decode(await response.read(), type=ListBody)
                assert len(found.pools) == POOLS or not found.complete
            return statuses
        assert status == 503
    raise AssertionError


async def watch_until_complete(server: Server) -> list[int]:
    """The statuses of a watch until it is taken; the pools it has named when it is first complete are all."""
    statuses: list[int] = []
    headers = {"Accept": "application/x-ndjson"}
    while True:
        async with server.session.get("/pools/watch", headers=headers) as response:
            statuses.append(response.status)
            if response.status == 200:
                await _follow(response)
                return statuses
            assert response.status == 503
        await asyncio.sleep(PAUSE_S)


async def _follow(response: aiohttp.ClientResponse) -> None:
    """Count the pools of a watch until it says that they are all."""
    keys: set[Any] = set()
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for event in map(msgspec.json.decode, lines):
            if event["type"] == "snapshot":
                keys = {pool["dgd_name"] for pool in event["pools"]}
            elif event["type"] == "added":
                keys.add(event["pool"]["dgd_name"])
            assert event["type"] != "removed"
            if event.get("complete"):
                assert len(keys) == POOLS
                return
    raise AssertionError("the watch ended")


async def test_h5_a_first_read_of_20000_pools_is_never_complete_before_all_are_listed(
    tmp_path: Path, table: Table, full: FaultProxy
) -> None:
    async with (
        instance(tmp_path, table.name, full.url, lease_s=LEASE_S) as server,
        asyncio.timeout(COMPLETE_S),
    ):
        seen = await asyncio.gather(
            list_until_complete(server), ready_until_complete(server), watch_until_complete(server)
        )
    for statuses in seen:
        assert statuses[0] == 503, "it was asked before its first read had ended"
