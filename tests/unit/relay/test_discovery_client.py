"""What the answers of discovery mean for a heartbeat, over a socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from poolmuster.client.settings import ClientSettings
from poolmuster.client.transport import open_session
from poolmuster.model.change import DeregistrationReason
from poolmuster.model.key import PoolKey
from poolmuster.relay.discovery import ANSWER_LIMIT_BYTES, DiscoveryClient
from poolmuster.relay.heartbeat import (
    Deregister,
    DeregisterRequest,
    HeartbeatAccepted,
    HeartbeatFailed,
    HeartbeatGone,
    HeartbeatRefused,
    Outcome,
    Register,
    Superseded,
    Terms,
)

KEY = PoolKey("c/1", "n s", "..n")
REGISTER = Register(0, "id-0", b'{"cluster_id":"c"}', 2_000)
DEREGISTER = Deregister(0, "id-0", DeregisterRequest(DeregistrationReason.NO_MODELS, "none & none"), 2_000)
TAKEN = {"lease": {"duration_ms": 30_000, "heartbeat_interval_ms": 9_000, "ends_at_ms": 1}, "routers": [], "new": 1}


class Discovery:
    """A service that answers one thing."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = json.dumps(TAKEN).encode()
        self.asked: list[tuple[str, str, bytes]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    def problem(self, status: int, kind: str, **more: Any) -> None:
        self.status = status
        problem = {"type": f"urn:poolmuster:{kind}", "title": "t", "status": status, "detail": "why", **more}
        self.body = json.dumps(problem).encode()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((request.method, request.raw_path, await request.read()))
        await self.go_on.wait()
        return web.Response(status=self.status, headers=self.headers, body=self.body)


@pytest.fixture
async def discovery() -> Discovery:
    return Discovery()


SHOWN = "The credentials sent there are those in --token-file or --client-cert."


@pytest.fixture
async def services(discovery: Discovery) -> AsyncIterator[DiscoveryClient]:
    runner = web.ServerRunner(web.Server(discovery.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    settings = ClientSettings(urls=(f"http://127.0.0.1:{runner.addresses[0][1]}/prefix",))
    async with open_session(settings) as session:
        yield DiscoveryClient(session, settings)
    discovery.go_on.set()
    await runner.cleanup()


async def test_a_registration_that_is_taken_tells_the_terms(discovery: Discovery, services: DiscoveryClient) -> None:
    assert await services.register(REGISTER) == HeartbeatAccepted(Terms(30_000, 9_000))
    assert discovery.asked == [("POST", "/prefix/pools", b'{"cluster_id":"c","relay_id":"id-0"}')]


async def test_201_means_that_the_pool_was_not_listed(discovery: Discovery, services: DiscoveryClient) -> None:
    discovery.status = 201
    discovery.body = json.dumps({**TAKEN, "conflict": True}).encode()
    assert await services.register(REGISTER) == HeartbeatAccepted(Terms(30_000, 9_000), created=True, conflict=True)


@pytest.mark.parametrize(
    ("status", "kind", "headers", "outcome"),
    [
        (409, "relay-left", {}, Superseded("why")),
        (429, "limit-reached", {"Retry-After": "7"}, HeartbeatFailed("why", 7_000)),
        (503, "unavailable", {"Retry-After": "2"}, HeartbeatFailed("why", 2_000)),
        (408, "request-timeout", {}, HeartbeatFailed("why")),
        (403, "forbidden", {}, HeartbeatRefused(403, f"why {SHOWN}")),
        (401, "unauthenticated", {}, HeartbeatRefused(401, f"why {SHOWN}")),
        (404, "not-found", {}, HeartbeatRefused(404, "why")),
        (413, "body-too-large", {}, HeartbeatRefused(413, "why")),
        (415, "unsupported-media-type", {}, HeartbeatRefused(415, "why")),
        (418, "of-a-later-version", {}, HeartbeatRefused(418, "why")),
        (500, "internal", {}, HeartbeatFailed("why")),
        (502, "of-a-proxy", {}, HeartbeatFailed("why")),
    ],
)
async def test_an_error_means_the_same_for_both_calls(
    discovery: Discovery, services: DiscoveryClient, status: int, kind: str, headers: dict[str, str], outcome: Outcome
) -> None:
    discovery.problem(status, kind)
    discovery.headers = headers
    assert await services.register(REGISTER) == outcome
    assert await services.deregister(KEY, DEREGISTER) == outcome


async def test_what_is_wrong_with_a_registration_is_named(discovery: Discovery, services: DiscoveryClient) -> None:
    discovery.problem(400, "invalid", errors=[{"pointer": "/labels/a", "detail": "is no string"}])
    assert await services.register(REGISTER) == HeartbeatRefused(400, "why /labels/a: is no string.")


async def test_a_redirect_is_not_followed(discovery: Discovery, services: DiscoveryClient) -> None:
    discovery.status = 307
    discovery.headers = {"Location": "/elsewhere"}
    assert isinstance(await services.register(REGISTER), HeartbeatFailed)
    assert isinstance(await services.deregister(KEY, DEREGISTER), HeartbeatFailed)
    assert {path for _, path, _ in discovery.asked if "elsewhere" in path} == set()


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"lease": {}}', b" " * (ANSWER_LIMIT_BYTES + 1)])
async def test_an_answer_that_is_none_of_ours_is_a_failure(
    discovery: Discovery, services: DiscoveryClient, body: bytes
) -> None:
    discovery.body = body
    assert isinstance(await services.register(REGISTER), HeartbeatFailed)


async def test_no_answer_in_the_steps_time_is_a_failure(discovery: Discovery, services: DiscoveryClient) -> None:
    discovery.go_on.clear()
    assert isinstance(await services.register(Register(0, "id-0", b"{}", 50)), HeartbeatFailed)
    assert isinstance(await services.deregister(KEY, Deregister(0, "id-0", DEREGISTER.request, 50)), HeartbeatFailed)


async def test_nothing_that_listens_is_a_failure() -> None:
    settings = ClientSettings(urls=("http://127.0.0.1:1",))
    async with open_session(settings) as session:
        outcome = await DiscoveryClient(session, settings).register(REGISTER)
    assert isinstance(outcome, HeartbeatFailed)
    assert "http://127.0.0.1:1 cannot be reached" in outcome.detail


async def test_a_deregistration_names_the_relay_and_the_reason(discovery: Discovery, services: DiscoveryClient) -> None:
    discovery.status, discovery.body = 204, b""
    assert await services.deregister(KEY, DEREGISTER) == HeartbeatGone()
    (method, path, body), *_ = discovery.asked
    assert (method, body) == ("DELETE", b"")
    assert path.startswith("/prefix/pools/c%2F1/n%20s/..n?relay_id=id-0&reason=no_models&detail=none%20%26%20none")
