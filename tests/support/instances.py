"""Instances of the service on one table, as processes, and pools that renew at them."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.ports import free_port
from tests.support.process import Program, poolmuster
from tests.support.registrations import document, key
from tests.support.service import path_of
from tests.support.table_server import NOWHERE, URL_VARIABLE

LEASE_S, HEARTBEAT_S = 6.0, 2.0
SOON_S = 10.0


class Server:
    """An instance on the DynamoDB store, and what is asked of it."""

    def __init__(self, program: Program, url: str) -> None:
        self.program = program
        self.url = url
        self.session = aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=10))

    async def get(self, path: str = "/pools") -> tuple[int, Any]:
        async with self.session.get(path) as answer:
            return answer.status, await answer.json(content_type=None)

    async def pools(self) -> tuple[list[str], bool]:
        """The names that it lists, and whether that is all; none where it has no list."""
        status, found = await self.get()
        return ([], False) if status != 200 else ([pool["dgd_name"] for pool in found["pools"]], found["complete"])

    async def sources(self) -> dict[str, dict[str, Any]]:
        """Its sources by name."""
        found = (await self.get("/status"))[1]
        return {source["name"]: source for source in found["sources"]}

    async def register(self, name: str = "a", relay_id: str = "r", **facts: Any) -> tuple[int, Mapping[str, str]]:
        async with self.session.post("/pools", json=document(name, relay_id=relay_id, **facts)) as answer:
            await answer.read()
            return answer.status, answer.headers

    async def leave(self, name: str = "a", query: str = "") -> int:
        async with self.session.delete(path_of(key(name)) + query) as answer:
            return answer.status

    async def metric(self, name: str) -> float:
        """The sum of a metric's series whose line begins with ``name``."""
        async with self.session.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        found = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)]
        assert found, f"there is no metric {name}"
        return sum(found)


@contextlib.asynccontextmanager
async def instance(
    folder: Path,
    table: str,
    endpoint_url: str,
    *,
    region: str | None = None,
    lease_s: float = LEASE_S,
    heartbeat_s: float = HEARTBEAT_S,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    arguments: Sequence[str] = (),
) -> AsyncIterator[Server]:
    """``poolmuster serve`` on ``table``, answering."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = poolmuster(
        "serve",
        *("--listen", f"127.0.0.1:{port}", "--registration-storage", "dynamodb"),
        *("--dynamodb-table", table, "--dynamodb-endpoint-url", endpoint_url),
        *(("--dynamodb-region", region) if region else ()),
        *("--lease-duration-secs", str(lease_s), "--heartbeat-interval-secs", str(heartbeat_s)),
        *arguments,
        folder=folder,
        env=NOWHERE | dict(env or {}),
        prefix=prefix,
        ready_url=f"{url}/health/live",
        ready_timeout_s=40,
    )
    if URL_VARIABLE not in os.environ:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
            program.env.pop(name, None)
    server = Server(program, url)
    try:
        async with program:
            yield server
    finally:
        await server.session.close()


async def eventually(holds: Callable[[], Awaitable[Any]], timeout_s: float = SOON_S) -> float:
    """Wait until ``holds``. Returns how long that took, in seconds."""
    started_s = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            while not await holds():
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise AssertionError(f"it did not come to be in {timeout_s} s") from error
    return time.monotonic() - started_s


@contextlib.asynccontextmanager
async def renewing(server: Server, *names: str, every_s: float = HEARTBEAT_S) -> AsyncIterator[None]:
    """Pools whose relays register them every heartbeat, and try again where that fails."""

    async def run(name: str) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                await server.register(name, relay_id=f"relay-{name}")
            await asyncio.sleep(every_s)

    tasks = [asyncio.create_task(run(name)) for name in names]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
