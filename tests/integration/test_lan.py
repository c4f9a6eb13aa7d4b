"""The network that other tests are made in does what they take for granted."""

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from socket import AF_INET, AF_INET6, AF_UNSPEC

import pytest

from tests.support.lan import Lan, Machine, up_longer
from tests.support.name_server import Mood
from tests.support.parts import LAN, TIME_NAMESPACE

pytestmark = pytest.mark.integration

PORT = 8080
NAME = "peers.test"


@pytest.fixture
async def lan(tmp_path: Path) -> AsyncIterator[Lan]:
    LAN.require()
    async with Lan(tmp_path) as lan:
        yield lan


async def run(machine: Machine, script: str, *before: str) -> str:
    """What a Python script says on a machine."""
    process = await asyncio.create_subprocess_exec(
        *machine.prefix, *before, sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    return said.decode().strip()


RESOLVE = f"""
import json, socket
try:
    print(json.dumps(sorted({{each[4][0] for each in socket.getaddrinfo("{NAME}", 1, FAMILY)}})))
except OSError as error:
    print(error.errno)
"""
FAMILIES = {family: RESOLVE.replace("FAMILY", str(int(family))) for family in (AF_UNSPEC, AF_INET, AF_INET6)}


async def test_a_name_is_what_its_records_say_at_that_moment(lan: Lan) -> None:
    machine = await lan.machine()
    assert int(await run(machine, FAMILIES[AF_UNSPEC])) == socket.EAI_NONAME
    for records in (["10.77.1.2"], ["10.77.1.2", "10.77.2.2", "fd77:1::2"]):
        machine.asks.records[NAME] = records
        assert json.loads(await run(machine, FAMILIES[AF_UNSPEC])) == records
        assert json.loads(await run(machine, FAMILIES[AF_INET])) == records[:2]
    assert json.loads(await run(machine, FAMILIES[AF_INET6])) == records[2:]
    machine.asks.records[NAME] = records[:2]
    assert int(await run(machine, FAMILIES[AF_INET6])) == socket.EAI_NODATA
    machine.asks.mood = Mood.FAILS
    assert int(await run(machine, FAMILIES[AF_INET])) == socket.EAI_AGAIN


async def test_a_resolver_that_is_silent_keeps_the_asker_waiting(lan: Lan) -> None:
    machine = await lan.machine()
    machine.asks.mood = Mood.SILENT
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run(machine, FAMILIES[AF_INET]), 3)
    assert machine.asks.asked


async def test_what_is_cut_is_silent_and_what_is_healed_comes_through(lan: Lan) -> None:
    one, two = await lan.machine(), await lan.machine()
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            heard.append(line)
        writer.close()

    async with await asyncio.start_server(serve, sock=two.listener(PORT)):
        _, writer = await one.connect(two.address, PORT)
        with pytest.raises(ConnectionRefusedError):
            await one.connect(two.address, PORT + 1)
        await lan.cut(two, one)
        writer.write(b"late\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one.connect(two.address, PORT), 1)
        assert not heard
        await lan.heal(one, two)
        async with asyncio.timeout(10):
            while not heard:
                await asyncio.sleep(0.05)
        assert two.traffic().received_bytes > 0
        writer.close()


async def test_a_monotonic_clock_can_be_an_hour_ahead(lan: Lan) -> None:
    TIME_NAMESPACE.require()
    machine = await lan.machine()
    said = float(await run(machine, "import time; print(time.monotonic())", *up_longer(3600)))
    assert 3590 < said - time.monotonic() < 3610
