"""``table check`` against what is no table: each answer is a finding, and none a traceback."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

pytest.importorskip("botocore", reason="botocore is not here: it comes with the extra 'dynamodb'")

from botocore.session import Session

from poolmuster.sources.dynamodb.admin import CheckState, TableAdmin
from poolmuster.sources.dynamodb.aws import TableLocation
from poolmuster.sources.polled.table import StoreError


class Answering:
    """A server that gives one answer to everything."""

    def __init__(self) -> None:
        self.url = ""
        self.body: bytes = b""
        self.headers: dict[str, str] = {}
        self.status = 200

    async def handle(self, request: web.Request) -> web.Response:
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Answering]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    answering = Answering()
    app = web.Application()
    app.router.add_post("/", answering.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    answering.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield answering
    await runner.cleanup()


def admin(server: Answering) -> TableAdmin:
    return TableAdmin(Session(), TableLocation("t", "r-1", server.url))


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b'"x"', b'{"Table":{}}', b'{"Table":[]}'])
async def test_what_is_no_table_is_a_bad_finding(server: Answering, body: bytes) -> None:
    server.body = body
    findings = await asyncio.to_thread(lambda: admin(server).check())
    assert findings[0].what == "table"
    assert findings[0].state is CheckState.BAD
    with pytest.raises(StoreError):
        await asyncio.to_thread(lambda: admin(server).plan(()))


@pytest.mark.parametrize("date", ["soon", "Mon, 30 Nov 99999999999999999999 10:00:00 GMT"])
async def test_a_date_that_is_none_says_nothing_of_the_clock(server: Answering, date: str) -> None:
    server.headers, server.status = {"Date": date}, 400
    server.body = b'{"__type":"x#AccessDeniedException","message":"no"}'
    findings: list[Any] = await asyncio.to_thread(lambda: admin(server).check())
    assert [each.state for each in findings if each.what == "clock"] == [CheckState.UNKNOWN]
