"""Each limit holds: whoever sends slowly, reads nothing or asks for too much holds up nobody else."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.ports import free_port
from tests.support.process import Program, poolmuster

pytestmark = pytest.mark.integration


def service(folder: Path, *flags: str) -> tuple[Program, int]:
    port = free_port()
    ready_url = f"http://127.0.0.1:{port}/health/ready"
    return poolmuster("serve", "--listen", f"127.0.0.1:{port}", *flags, folder=folder, ready_url=ready_url), port


def pool(number: int, **more: Any) -> dict[str, Any]:
    return {"cluster_id": f"c{number % 2}", "namespace": "n", "dgd_name": f"p{number}", **more}


async def end_of(reader: asyncio.StreamReader, within_s: float) -> bytes:
    async with asyncio.timeout(within_s):
        return await reader.read()


async def test_a_head_that_never_ends_and_a_body_that_never_comes_are_408_and_others_are_served(tmp_path: Path) -> None:
    program, port = service(tmp_path, "--limit-head-secs", "1", "--limit-body-secs", "1", "--limit-idle-secs", "2")
    async with program:
        never_ending, in_drops, no_body, silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        never_ending[1].write(b"GET /pools HTTP/1.1\r\nhost: localhost\r\nx: ")
        no_body[1].write(
            b"POST /pools HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
        )

        async def drip() -> None:
            for byte in b"GET /pools HTTP/1.1\r\nhost: localhost\r\n":
                in_drops[1].write(bytes([byte]))
                await asyncio.sleep(0.2)

        dripping = asyncio.create_task(drip())
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session, session.get("/pools") as answer:
            assert answer.status == 200
        for reader, writer in (never_ending, in_drops, no_body):
            assert b" 408 " in await end_of(reader, within_s=6)
            writer.close()
        assert await end_of(silent[0], within_s=8) == b""
        silent[1].close()
        dripping.cancel()


async def test_a_head_over_its_limit_is_431(tmp_path: Path) -> None:
    program, port = service(tmp_path, "--limit-head-bytes", "1000")
    async with program:
        for head in (b"x: " + b"y" * 2000 + b"\r\n\r\n", b"x: 1\r\n" * 300):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /pools HTTP/1.1\r\nhost: localhost\r\n" + head)
            assert b" 431 " in await end_of(reader, within_s=3)
            writer.close()


async def test_connections_beyond_the_limit_get_503_and_the_others_go_on(tmp_path: Path) -> None:
    program, port = service(tmp_path, "--limit-connections", "20")
    async with program:
        async with asyncio.timeout(5):
            connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        refused = await end_of(reader, within_s=3)
        assert b" 503 " in refused
        assert b"retry-after" in refused
        writer.close()
        connections[0][1].write(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b" 200 " in await connections[0][0].readline()
        for _, each in connections:
            each.close()


async def test_streams_beyond_the_limit_get_503(tmp_path: Path) -> None:
    program, port = service(tmp_path, "--limit-streams", "2")
    async with program, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        first, second = await session.get("/pools/watch"), await session.get("/pools/watch")
        async with session.get("/pools/watch") as third:
            assert third.status == 503
            assert "retry-after" in third.headers
        first.close()
        second.close()


async def test_beyond_the_limits_of_pools_new_ones_get_429_and_renewals_do_not(tmp_path: Path) -> None:
    program, port = service(tmp_path, "--limit-pools", "3", "--limit-pools-per-cluster", "2")
    async with program, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def register(document: dict[str, Any]) -> int:
            async with session.post("/pools", json=document) as answer:
                return answer.status

        assert [await register(pool(number)) for number in (0, 2, 4, 1, 3)] == [201, 201, 429, 201, 429]
        assert await register(pool(0)) == 200
        assert await register(pool(0, weight=5)) == 200


async def test_a_watcher_that_reads_nothing_gets_one_fresh_snapshot_when_it_reads_again(tmp_path: Path) -> None:
    program, port = service(tmp_path, "--limit-history-changes", "50")
    slow = aiohttp.ClientSession(f"http://127.0.0.1:{port}", read_bufsize=4096)
    async with program, slow, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        # aiohttp stops reading from the socket while nobody takes what it has read.
        stream = await slow.get("/pools/watch", headers={"accept": "application/x-ndjson"})
        await stream.content.readuntil(b"\n")
        for number in range(300):
            document = pool(number % 3, labels={"fill": str(number) * 40_000})
            async with session.post("/pools", json=document) as answer:
                assert answer.status in (200, 201)
        async with session.get("/pools") as answer:
            listed = (await answer.json())["pools"]
        last: dict[str, Any] = {}
        snapshots = 0
        buffer = b""
        async with asyncio.timeout(30):
            while last.get("pools") != listed:
                chunk = await stream.content.readany()
                assert chunk, "the stream ended"
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if b'"snapshot"' in line[:30]:
                        last = json.loads(line)
                        snapshots += 1
        assert snapshots == 1
        async with session.get("/metrics") as answer:
            assert "poolmuster_watch_resets_total 1.0" in await answer.text()
        stream.close()
