"""The limits at their full size: as many connections as there may be, and lists that nobody reads."""

import asyncio
import resource
import socket
from pathlib import Path

import aiohttp
import pytest

from tests.support.ports import free_port
from tests.support.process import Program, poolmuster

pytestmark = pytest.mark.integration

CONNECTIONS = 10_000
FILES = CONNECTIONS + 300
AT_ONCE = 200

POOLS, FILL_BYTES = 80, 240_000
SILENT = 30
GROWTH_LIMIT_BYTES = 64 * 1024 * 1024
"""A list is 19 MB here: buffered for each who reads nothing, they would hold over 1 GB."""


def service(folder: Path, *flags: str) -> tuple[Program, int]:
    port = free_port()
    ready_url = f"http://127.0.0.1:{port}/health/ready"
    return poolmuster("serve", "--listen", f"127.0.0.1:{port}", *flags, folder=folder, ready_url=ready_url), port


async def test_the_ten_thousand_and_first_connection_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip(f"a process may have {hard} open files here, and {FILES} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    program, port = service(tmp_path)
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        async with program:
            while len(connections) < CONNECTIONS:
                more = (asyncio.open_connection("127.0.0.1", port) for _ in range(AT_ONCE))
                connections += await asyncio.gather(*more)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(10):
                refused = await reader.read()
            writer.close()
            assert b" 503 " in refused
            assert b"retry-after: " in refused
            assert b"poolmuster-instance: " in refused
            for reader, writer in (connections[0], connections[CONNECTIONS // 2], connections[-1]):
                writer.write(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
                async with asyncio.timeout(10):
                    assert b" 200 " in await reader.readline()
            for _, writer in connections[: CONNECTIONS // 2]:
                writer.close()
            async with asyncio.timeout(10):
                while not await _is_served(port):
                    await asyncio.sleep(0.05)
    finally:
        for _, writer in connections:
            writer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _is_served(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return b" 200 " in line


def _memory_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def _ask_and_never_read(port: int, target: str) -> socket.socket:
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    silent.connect(("127.0.0.1", port))
    silent.sendall(f"GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return silent


async def test_who_reads_nothing_holds_its_connection_for_a_while_and_nothing_else(tmp_path: Path) -> None:
    program, port = service(tmp_path, "--limit-send-stall-secs", "4", "--limit-history-changes", "20")
    async with program, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def register(number: int, fill: str) -> None:
            document = {"cluster_id": "c", "namespace": "n", "dgd_name": f"p{number}", "fill": fill * FILL_BYTES}
            async with session.post("/pools", json=document) as answer:
                assert answer.status in (200, 201)

        for number in range(POOLS):
            await register(number, "a")
        async with session.get("/pools") as answer:
            assert len(await answer.read()) > POOLS * FILL_BYTES
        before_bytes = _memory_bytes(program.pid)
        silent = [
            _ask_and_never_read(port, target)
            for target in ("/pools", "/pools?include=lease", "/pools/watch")
            for _ in range(SILENT)
        ]
        try:
            for number in range(POOLS):
                await register(number, "b")
            async with asyncio.timeout(2), session.get("/pools?dgd_name=p1") as answer:
                assert answer.status == 200
            assert _memory_bytes(program.pid) - before_bytes < GROWTH_LIMIT_BYTES
            async with asyncio.timeout(30):
                dropped = f'poolmuster_http_refusals_total{{limit="sends_stalled"}} {float(len(silent))}'
                while dropped not in await _metrics(session):
                    await asyncio.sleep(0.2)
        finally:
            for each in silent:
                each.close()


async def _metrics(session: aiohttp.ClientSession) -> str:
    async with session.get("/metrics") as answer:
        return await answer.text()


async def test_beyond_the_bytes_of_registrations_nothing_grows_and_renewals_go_on(tmp_path: Path) -> None:
    program, port = service(tmp_path, "--limit-registrations-bytes", "2000")
    async with program, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def register(name: str, fill_bytes: int) -> int:
            document = {"cluster_id": "c", "namespace": "n", "dgd_name": name, "fill": "x" * fill_bytes}
            async with session.post("/pools", json=document) as answer:
                if answer.status == 429:
                    assert answer.headers["retry-after"]
                    assert (await answer.json(content_type=None))["type"] == "urn:poolmuster:limit-reached"
                return answer.status

        assert await register("a", 1500) == 201
        async with session.get("/pools") as answer:
            before = answer.headers["etag"], (await answer.json())["pools"]
        assert await register("b", 1500) == 429
        assert await register("a", 1990) == 429
        assert await register("a", 1500) == 200
        async with session.get("/pools") as answer:
            assert (await answer.json())["pools"] == before[1]
        assert await register("a", 100) == 200
        assert await register("b", 1500) == 201
