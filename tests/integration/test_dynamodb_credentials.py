"""Credentials that expire and are slow to come.

The proxy before the table takes no call whose credentials have expired, as AWS does.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.fault_proxy import Answer, Call, Fault, FaultProxy, error, fault_proxy
from tests.support.instances import Server, eventually, instance, renewing
from tests.support.listening import listening
from tests.support.table_server import Table
from tests.support.watching import watching

pytestmark = pytest.mark.integration

LIFE_S = 8.0
SLOW_S = 3.0
WATCHED_S = 2 * LIFE_S


def issue(life_s: float = LIFE_S) -> dict[str, Any]:
    """A set of credentials that says in its token when it ends."""
    ends_s = time.time() + life_s
    expiration = datetime.fromtimestamp(ends_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "AccessKeyId": "ASIATEST",
        "SecretAccessKey": "secret",
        "Token": f"ends-{ends_s}",
        "Expiration": expiration,
    }


def take_none_that_expired(seen: set[str]) -> Callable[[Call], Fault | Answer]:
    """What AWS does; ``seen`` are the tokens that were good when they came."""

    def decide(call: Call) -> Fault | Answer:
        token = call.headers.get("x-amz-security-token", "ends-0")
        if float(token.removeprefix("ends-")) < time.time():
            return error("ExpiredTokenException", "The security token included in the request is expired")
        seen.add(token)
        return Fault.NONE

    return decide


class TokenService:
    """A container's token service, which makes everybody wait.

    AWS libraries give up on it after two seconds and ask once more a second later, so what takes three seconds is a
    service of which every other answer is lost.
    """

    def __init__(self) -> None:
        self.url = ""
        self.down = False
        self._asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self._asked += 1
            if self.down or self._asked % 2:
                await asyncio.sleep(SLOW_S)
            else:
                content = json.dumps(issue()).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                    + f"Content-Length: {len(content)}\r\n\r\n".encode()
                    + content
                )
                await writer.drain()


@contextlib.asynccontextmanager
async def token_service() -> AsyncIterator[TokenService]:
    service = TokenService()
    async with listening(service.serve) as url:
        service.url = f"{url}/credentials"
        yield service


@contextlib.asynccontextmanager
async def from_container(folder: Path) -> AsyncIterator[dict[str, str]]:
    """Variables by which credentials come from a container's token service, as EKS sets them."""
    async with token_service() as service:
        yield {"AWS_CONTAINER_CREDENTIALS_FULL_URI": service.url}


@contextlib.asynccontextmanager
async def from_process(folder: Path) -> AsyncIterator[dict[str, str]]:
    """Variables by which credentials come from a program that takes three seconds."""
    program = folder / "credentials.py"
    program.write_text(
        "import json, time, datetime\n"
        f"time.sleep({SLOW_S})\n"
        f"ends_s = time.time() + {LIFE_S}\n"
        "expiration = datetime.datetime.fromtimestamp(ends_s, datetime.UTC).isoformat()\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': 'ASIATEST', 'SecretAccessKey': 'secret',"
        " 'SessionToken': f'ends-{ends_s}', 'Expiration': expiration}))\n"
    )
    config = folder / "aws-config"
    config.write_text(f"[default]\ncredential_process = {sys.executable} {program}\n")
    yield {"AWS_CONFIG_FILE": str(config)}


WAYS = {"container": from_container, "process": from_process}


async def complete(server: Server) -> bool:
    return (await server.pools())[1]


@pytest.fixture
async def proxy(table: Table) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(table.server.url) as found:
        yield found


@pytest.mark.parametrize("way", WAYS)
async def test_d8_credentials_that_expire_and_take_three_seconds_to_refresh_cause_no_gap(
    tmp_path: Path, table: Table, proxy: FaultProxy, way: str
) -> None:
    tokens: set[str] = set()
    proxy.decide = take_none_that_expired(tokens)
    async with WAYS[way](tmp_path) as env, instance(tmp_path, table.name, proxy.url, env=env) as server:
        await eventually(lambda: complete(server), 3 * SLOW_S)
        async with renewing(server, "a"), watching(server.url) as watcher:
            failed = await _failed(server)
            ends_s = time.monotonic() + WATCHED_S
            slowest_s = 0.0
            while time.monotonic() < ends_s:
                started_s = time.monotonic()
                assert (await server.register("b"))[0] in (200, 201)
                slowest_s = max(slowest_s, time.monotonic() - started_s)
                await asyncio.sleep(0.1)
            assert await _failed(server) == failed, "no read, no write met credentials that had expired"
            assert set(watcher.movements) == {"added"}, watcher.movements
            assert not [told for told in watcher.told if told.type == "completeness"]
    print(f"{way}: {len(tokens)} sets of credentials, the slowest heartbeat {slowest_s:.2f} s")
    assert len(tokens) >= 3
    assert slowest_s < SLOW_S / 2, "a heartbeat does not wait for credentials"


async def _failed(server: Server) -> float:
    """How many reads and writes did not succeed."""
    total = 0.0
    async with server.session.get("/metrics") as answer:
        for line in (await answer.text()).splitlines():
            if line.startswith(("poolmuster_table_reads_total", "poolmuster_table_writes_total")):
                total += float(line.rpartition(" ")[2]) if 'outcome="good"' not in line else 0
    return total


async def test_credentials_that_cannot_be_renewed_are_said_once_they_end_and_heal(
    tmp_path: Path, table: Table, proxy: FaultProxy
) -> None:
    proxy.decide = take_none_that_expired(set())
    async with token_service() as service:
        env = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": service.url}
        async with instance(tmp_path, table.name, proxy.url, env=env) as server:
            await eventually(lambda: complete(server), 3 * SLOW_S)
            service.down = True
            await eventually(lambda: _says(server, "credentials_expired"), LIFE_S + 3 * SLOW_S)
            await server.program.wait_line("The AWS credentials cannot be renewed")
            assert "Traceback" not in server.program.stderr
            service.down = False
            await eventually(lambda: complete(server), 6 * SLOW_S)
            await server.program.wait_line("The AWS credentials are renewed again")


async def _says(server: Server, reason: str) -> bool:
    return any(source["reason"] == reason for source in (await server.sources()).values())
