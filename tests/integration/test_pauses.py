"""A process that was stopped: its first responses are not complete before the sources were asked again (L5, L8).

``POOLMUSTER_PAUSE_S`` sets the length of the pause; leases are a quarter of it.
"""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.process import poolmuster
from tests.support.registrations import body
from tests.support.variables import variable

pytestmark = pytest.mark.integration

PAUSE_S = float(variable("PAUSE_S", "6"))
LEASE_S = PAUSE_S / 4
REQUEST = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Connection:
    """A connection to the service that sends requests and reads their responses one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, request: bytes) -> None:
        self._writer.write(request)

    async def response(self) -> tuple[dict[str, str], Any]:
        """Headers and body of the next response."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head)}
        return headers, json.loads(await self._reader.readexactly(int(headers["content-length"])))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, request: bytes) -> tuple[dict[str, str], Any]:
        self.send(request)
        return await self.response()


async def test_after_a_pause_the_first_response_is_not_complete_though_the_request_came_before(tmp_path: Path) -> None:
    """The request waits in the socket while the process is stopped, so it is read before or after the late timer."""
    port = free_port()
    flags = ("--lease-duration-secs", f"{LEASE_S:g}", "--heartbeat-interval-secs", f"{LEASE_S / 3:g}")
    url = f"http://127.0.0.1:{port}/health/ready"
    sent = body("a", relay_id="r")
    heartbeat = (
        b"POST /pools HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    heartbeat = heartbeat % len(sent) + sent
    async with poolmuster("serve", "--listen", f"127.0.0.1:{port}", *flags, folder=tmp_path, ready_url=url) as program:
        asking, beating = [Connection(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(2)]
        complete = False
        while not complete:
            await beating.ask(heartbeat)
            complete = (await asking.ask(REQUEST % b"/pools"))[1]["complete"]
            await asyncio.sleep(LEASE_S / 10)
        program.send_signal(signal.SIGSTOP)
        await asyncio.sleep(PAUSE_S)
        asking.send(REQUEST % b"/pools" + REQUEST % b"/status")
        beating.send(heartbeat)
        program.send_signal(signal.SIGCONT)
        headers, found = await asking.response()
        assert headers["poolmuster-complete"] == "false"
        assert found["complete"] is False
        assert [pool["dgd_name"] for pool in found["pools"]] == ["a"], "a pause ends no lease"
        headers, found = await asking.response()
        assert (headers["poolmuster-complete"], found["complete"]) == ("false", False)
        headers, _ = await beating.response()
        assert headers["poolmuster-complete"] == "false"
        await asking.close()
        await beating.close()
