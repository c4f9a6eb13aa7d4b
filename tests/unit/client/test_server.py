"""The client over real sockets, against a server that misbehaves in every way a network and a proxy can."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from poolmuster.client import (
    AsyncClient,
    ClientSettings,
    Follower,
    InvalidResponse,
    NotReady,
    UnexpectedStatus,
    Unreachable,
)
from poolmuster.client.api import DiscoveryApi
from poolmuster.model.errors import InvalidInput, NotFound, RelayDeregistered
from poolmuster.model.key import PoolKey
from tests.support.clock import ManualClock
from tests.unit.client.fakes import event, pool, snapshot
from tests.unit.client.server import OVER, PATIENCE_S, Handler, Server, answers, lines, problem, streams


def client_of(*urls: str, clock: ManualClock | None = None, **settings: Any) -> AsyncClient:
    fast = {"backoff_first_ms": 1, "backoff_limit_ms": 2} | settings
    return AsyncClient(ClientSettings(urls=urls, **fast), clock=clock)


async def until(follower: Follower, condition: Callable[[], bool]) -> None:
    """Wait until what the follower holds meets a condition."""
    updates = follower.updates()
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await anext(updates)


async def test_calls_and_their_answers(server: Server) -> None:
    server.handlers = [
        answers(
            pools=[pool("a", big=2**80)],
            complete=False,
            revision="b.1",
            sources=[],
            headers={"Poolmuster-Instance": "b"},
        ),
        answers(201, lease={"duration_ms": 15000, "heartbeat_interval_ms": 5000, "ends_at_ms": 1}, routers=[], new=1),
        answers(204, body=b""),
        answers(listed=True),
        answers(changes=[]),
        answers(pools=1),
        answers(routers=[{"id": "r", "url": "http://r", "new": 1}]),
    ]
    async with client_of(server.url + "/base/") as client:
        listing = await client.list(model=["m/1 %", "ü"], label="a=b")
        assert (listing.pools[0]["big"], listing.complete, listing.instance) == (2**80, False, "b")
        registered = await client.register({"cluster_id": "c", "namespace": "n", "dgd_name": "é"})
        assert registered.lease.duration_ms == 15000
        await client.deregister(PoolKey("c/d", "n%", "x#?"), relay_id="r&", reason="operator", detail="a b")
        assert (await client.get("c/n/a%2Fb")).document == {"listed": True}
        assert (await client.changes(1_234_567.5, region="r")).document == {"changes": []}
        assert (await client.status()).document == {"pools": 1}
        assert (await client.routers())[0].url == "http://r"
    assert server.paths == [
        "GET /base/pools?model=m%2F1%20%25&model=%C3%BC&label=a%3Db",
        "POST /base/pools",
        "DELETE /base/pools/c%2Fd/n%25/x%23%3F?relay_id=r%26&reason=operator&detail=a%20b",
        "GET /base/pools/c/n/a%2Fb",
        "GET /base/changes?since=1234567.5&region=r",
        "GET /base/status",
        "GET /base/routers",
    ]
    assert server.requests[1].headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (problem(400, "invalid", errors=[{"pointer": "model", "detail": "x"}]), InvalidInput),
        (problem(404, "not-found"), NotFound),
        (problem(409, "relay-left"), RelayDeregistered),
        (answers(503, body=b"<html>", headers={"Retry-After": "3"}), NotReady),
        (answers(302, headers={"Location": "http://elsewhere/"}), InvalidResponse),
        (answers(body=b"<html>"), InvalidResponse),
        (answers(body=b"[]"), InvalidResponse),
        (answers(other=1), InvalidResponse),
        (streams(b'{"pools":', end="cut"), Unreachable),
    ],
)
async def test_errors_are_typed(server: Server, handler: Handler, error: type[Exception]) -> None:
    server.handlers = [handler]
    async with client_of(server.url) as client:
        with pytest.raises(error):
            await client.list()


async def test_answers_to_writes_are_checked(server: Server) -> None:
    server.handlers = [answers(lease=None), answers(routers=5)]
    async with client_of(server.url) as client:
        with pytest.raises(InvalidResponse):
            await client.register(b"{}")
        with pytest.raises(InvalidResponse):
            await client.routers()


async def test_answers_have_a_bound(server: Server) -> None:
    server.handlers = [answers(pools=[], complete=True, pad="x" * 2000)]
    async with client_of(server.url, answer_limit_bytes=1000) as client:
        with pytest.raises(InvalidResponse, match="over 1000 bytes"):
            await client.list()


async def test_a_server_that_never_answers_costs_no_more_than_the_timeout(server: Server) -> None:
    async def never(request: web.Request) -> web.Response:
        await request.app[OVER].wait()
        return web.Response()

    server.handlers = [never]
    async with client_of(server.url) as client:
        api: DiscoveryApi = client.apis[0]
        with pytest.raises(Unreachable, match="does not answer in time"):
            await api.register(b"{}", timeout_s=0.01)


async def test_another_instance_answers_for_one_that_is_down_or_not_ready(server: Server) -> None:
    server.handlers = [problem(503, "unavailable"), answers(pools=[], complete=True)]
    async with client_of("http://127.0.0.1:1", server.url, server.url + "/second") as client:
        assert (await client.list()).complete
    async with client_of("http://127.0.0.1:1") as client:
        with pytest.raises(Unreachable, match="Connection refused"):
            await client.list()


@pytest.mark.parametrize(
    "first",
    [
        answers(502, body=b"<html>bad gateway"),
        answers(504, body=b""),
        problem(500, "internal"),
        answers(body=b"<html>a page of something else"),
        answers(302, headers={"Location": "http://elsewhere/"}),
        answers(other=1),
    ],
)
async def test_another_instance_answers_for_a_proxy_or_a_stranger(server: Server, first: Handler) -> None:
    server.handlers = [first, answers(pools=[], complete=True)]
    async with client_of(server.url, server.url + "/second") as client:
        assert (await client.list()).complete
    assert server.paths == ["GET /pools", "GET /second/pools"]


async def test_where_no_instance_answers_the_last_error_is_told(server: Server) -> None:
    server.handlers = [problem(503, "unavailable"), answers(502, body=b"")]
    async with client_of(server.url, server.url + "/second") as client:
        with pytest.raises(UnexpectedStatus, match="/second answered 502"):
            await client.list()


async def test_an_error_of_the_caller_is_not_tried_elsewhere(server: Server) -> None:
    server.handlers = [problem(400, "invalid"), answers(418, body=b"")]
    async with client_of(server.url, server.url + "/second") as client:
        with pytest.raises(InvalidInput):
            await client.list()
        assert len(server.requests) == 1
        with pytest.raises(UnexpectedStatus):
            await client.list()
    assert len(server.requests) == 2


async def test_a_line_of_ten_megabytes_arrives(server: Server) -> None:
    pools = [pool(f"{number:05}", pad="x" * 1000, odd="\u2028\u0085") for number in range(10_000)]
    big = json.dumps(event("snapshot", pools=pools, complete=True, sources=[]), ensure_ascii=False).encode() + b"\n"
    assert len(big) > 10_000_000
    server.handlers = [streams(big + lines(event("removed", 2, key=pools[0], cause="expired", reason=None)))]
    async with client_of(server.url) as client, client.follow() as follower:
        await until(follower, lambda: len(follower.pools) == 9_999)


async def test_a_stream_cut_into_single_bytes_arrives(server: Server) -> None:
    data = lines(snapshot("é"), event("added", 2, pool=pool("b")))
    server.handlers = [streams(*(data[at : at + 1] for at in range(len(data))))]
    async with client_of(server.url) as client, client.follow() as follower:
        await until(follower, lambda: len(follower.pools) == 2)


@pytest.mark.parametrize("end", ["cut", "end"])
async def test_it_resumes_after_a_cut_in_the_middle_of_a_line(server: Server, end: str) -> None:
    second = lines(event("completeness", 1, complete=True, sources=[]), event("added", 2, pool=pool("b")))
    server.handlers = [streams(lines(snapshot("a")) + second[:-20], end=end), streams(second)]
    async with client_of(server.url) as client, client.follow(region="r") as follower:
        await until(follower, lambda: len(follower.pools) == 2 and follower.complete)
    assert [request.headers.get("Last-Event-ID") for request in server.requests][:2] == [None, "b.1.f"]
    assert server.requests[0].headers["Accept"] == "application/x-ndjson"
    assert server.paths[0] == "GET /pools/watch?region=r"


async def test_it_gets_past_everything_that_is_not_a_watch(server: Server) -> None:
    server.handlers = [
        problem(503, "unavailable"),
        answers(200, body=b"<html>"),
        answers(302, headers={"Location": "/elsewhere"}),
        problem(403, "forbidden"),
        streams(b"garbage\n"),
        streams(b"", end="end"),
        streams(b"x" * 5000),
        streams(lines(snapshot("a"))),
    ]
    clock = ManualClock()
    async with client_of(server.url, clock=clock, answer_limit_bytes=4000) as client, client.follow() as follower:
        async with asyncio.timeout(PATIENCE_S):
            while not follower.complete:
                await clock.advance(500)
        assert len(follower.pools) == 1
    assert len(server.requests) == 8


async def test_silence_on_a_real_connection_leads_to_another_instance(server: Server) -> None:
    """C1, over sockets, in a second of the test's own time."""
    server.handlers = [streams(lines(snapshot("a"))), streams(lines(snapshot("a", "b", boot="c")))]
    clock = ManualClock()
    async with client_of(server.url, server.url + "/second", clock=clock) as client, client.follow() as follower:
        await until(follower, lambda: len(follower.pools) == 1)
        await clock.advance(14_999)
        assert follower.complete
        await clock.advance(1)
        await until(follower, lambda: len(follower.pools) == 2)
        assert follower.connected_url == server.url + "/second"


async def test_leaving_the_block_closes_the_watch(server: Server) -> None:
    server.handlers = [streams(lines(snapshot("a")))]
    async with client_of(server.url) as client:
        async with client.follow() as follower:
            await until(follower, lambda: follower.has_list)
            left = follower.updates()
        assert [update.kind async for update in left] == ["overrun"], "the list was there before"


async def test_a_block_that_is_left_at_once_ends_its_updates_too() -> None:
    async with client_of("http://127.0.0.1:1") as client:
        async with client.follow() as follower:
            left = follower.updates()
        assert [update async for update in left] == []
        assert [update async for update in follower.updates()] == []


async def test_a_client_is_used_inside_its_block() -> None:
    client = client_of("http://127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="async with"):
            await client.list()
        with pytest.raises(RuntimeError, match="async with"):
            async with client.follow():
                pass
        async with client:
            pass
