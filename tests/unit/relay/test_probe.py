"""One look at a model server, against servers that do all kinds of things."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from poolmuster.model.change import DeregistrationReason
from poolmuster.programs.relay import open_probe_session
from poolmuster.relay.probe import (
    BODY_LIMIT_BYTES,
    MODELS_LIMIT,
    Finding,
    Healthy,
    ProbeAccess,
    Prober,
    ServedModel,
    Unhealthy,
    parse_models,
)


class Server:
    """A model server under a test's control. ``ready`` maps raw paths of ready pages to their status."""

    def __init__(self) -> None:
        self.health: Any = 200
        self.models: Any = [{"id": "m"}]
        self.ready: dict[str, int] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path
        self.asked.append(path)
        self.headers.append(dict(request.headers))
        await self.go_on.wait()
        if path == "/health":
            found = self.health
        elif path == "/v1/models":
            found = self.models
        else:
            found = self.ready.get(path, 404)
        if callable(found):
            response: web.StreamResponse = await found(request)
            return response
        if isinstance(found, int):
            return web.Response(status=found, headers={"Location": "/elsewhere"} if 300 <= found < 400 else None)
        if isinstance(found, bytes):
            return web.Response(body=found)
        return web.json_response({"object": "list", "data": found})


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with open_probe_session() as session:
        yield session


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def root(server: Server) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(server.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address: tuple[str, int] = runner.addresses[0]
    yield f"http://127.0.0.1:{address[1]}"
    server.go_on.set()
    await runner.cleanup()


@pytest.fixture
async def prober(session: aiohttp.ClientSession) -> Prober:
    return Prober(session)


async def look(prober: Prober, root: str, timeout_s: float = 5.0, token: str | None = None) -> Finding:
    return await prober.probe(ProbeAccess(root, "/health", token), timeout_s)


async def test_a_healthy_server_serves_what_it_lists(server: Server, root: str, prober: Prober) -> None:
    server.models = [{"id": "b", "max_model_len": 10}, {"id": "a", "context_window": 20}, {"id": "b"}]
    assert await look(prober, root) == Healthy((ServedModel("a", 20), ServedModel("b", 10)))
    assert server.headers[0]["Accept-Encoding"] == "identity"
    assert "Authorization" not in server.headers[0]


async def test_the_token_is_shown(server: Server, root: str, prober: Prober) -> None:
    await look(prober, root, token="t")
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer t"}


async def test_a_server_without_a_health_page_is_judged_by_its_models(
    server: Server, root: str, prober: Prober
) -> None:
    server.health = 404
    assert await look(prober, root) == Healthy((ServedModel("m"),))


@pytest.mark.parametrize("status", [500, 503, 401, 302])
async def test_another_answer_of_the_health_page_is_unhealthy(
    server: Server, root: str, prober: Prober, status: int
) -> None:
    server.health = status
    assert await look(prober, root) == Unhealthy(DeregistrationReason.FRONTEND_UNHEALTHY, f"/health answered {status}")
    assert server.asked == ["/health"], "no redirect is followed"


@pytest.mark.parametrize("status", [404, 401, 500, 204, 307])
async def test_a_server_that_lists_nothing_readable_is_unhealthy(
    server: Server, root: str, prober: Prober, status: int
) -> None:
    server.models = status
    assert await look(prober, root) == Unhealthy(
        DeregistrationReason.FRONTEND_UNHEALTHY, f"/v1/models answered {status}"
    )


async def test_an_empty_list_is_no_models(server: Server, root: str, prober: Prober) -> None:
    server.models = []
    assert await look(prober, root) == Unhealthy(DeregistrationReason.NO_MODELS, "/v1/models lists none")


async def test_a_model_that_says_it_is_not_ready_is_left_out(server: Server, root: str, prober: Prober) -> None:
    server.models = [{"id": "org/a b:%2F?#"}, {"id": "b"}, {"id": "c"}]
    server.ready = {"/v1/models/org%2Fa%20b%3A%252F%3F%23/ready": 503, "/v1/models/b/ready": 200}
    assert await look(prober, root) == Healthy((ServedModel("b"), ServedModel("c")))
    server.ready = dict.fromkeys(server.ready, 200)
    assert await look(prober, root) == Healthy(tuple(map(ServedModel, ("b", "c", "org/a b:%2F?#"))))


async def test_none_ready_is_no_models(server: Server, root: str, prober: Prober) -> None:
    server.ready = {"/v1/models/m/ready": 503}
    assert await look(prober, root) == Unhealthy(DeregistrationReason.NO_MODELS, "none of the 1 listed models is ready")


@pytest.mark.parametrize("status", [404, 405, 500, 401, 302])
async def test_any_other_answer_means_that_there_is_no_ready_page(
    server: Server, root: str, prober: Prober, status: int
) -> None:
    server.ready = {"/v1/models/m/ready": status}
    assert await look(prober, root) == Healthy((ServedModel("m"),))
    server.ready = {"/v1/models/m/ready": 503}
    assert isinstance(await look(prober, root), Unhealthy), "it is asked for again at every probe"


async def test_a_server_that_does_not_answer_in_time_is_unhealthy(server: Server, root: str, prober: Prober) -> None:
    server.go_on.clear()
    finding = await look(prober, root, timeout_s=0.05)
    assert finding == Unhealthy(DeregistrationReason.FRONTEND_UNHEALTHY, "no whole answer within 0.05 s")


async def test_nothing_that_listens_is_unhealthy(prober: Prober) -> None:
    finding = await look(prober, "http://127.0.0.1:1")
    assert isinstance(finding, Unhealthy)
    assert "cannot be reached" in finding.detail


async def test_a_name_that_cannot_be_one_is_unhealthy(prober: Prober) -> None:
    assert isinstance(await look(prober, "http://" + "a" * 300 + ".example"), Unhealthy)


async def test_a_health_page_that_never_ends_does_not_hold_the_probe(server: Server, root: str, prober: Prober) -> None:
    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"data: alive\n\n")
            await asyncio.sleep(0.01)

    server.health = endless
    assert await look(prober, root) == Healthy((ServedModel("m"),))


async def test_a_list_over_the_limit_is_not_read_whole(server: Server, root: str, prober: Prober) -> None:
    server.models = b" " * (BODY_LIMIT_BYTES + 1)
    finding = await look(prober, root)
    assert isinstance(finding, Unhealthy)
    assert "more than" in finding.detail


async def test_compressed_answers_are_not_unpacked(server: Server, root: str, prober: Prober) -> None:
    async def bomb(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"\x1f\x8b not unpacked", headers={"Content-Encoding": "gzip"})

    server.models = bomb
    finding = await look(prober, root)
    assert isinstance(finding, Unhealthy)
    assert "JSON" in finding.detail


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"data": {}}',
        b'{"models": []}',
        b"null",
        b"[" * 100_000,
        b'{"data":[{"id":"\\ud800"}]}',
        b"\xff",
    ],
)
async def test_an_answer_that_is_no_list_of_models_is_unhealthy(
    server: Server, root: str, prober: Prober, body: bytes
) -> None:
    server.models = body
    finding = await look(prober, root)
    assert isinstance(finding, Unhealthy)
    assert finding.reason is DeregistrationReason.FRONTEND_UNHEALTHY


@pytest.mark.parametrize(
    ("entry", "models"),
    [
        ({"id": "a", "max_model_len": 5, "context_window": 6}, (ServedModel("a", 5),)),
        ({"id": "a", "max_model_len": None, "context_window": 6}, (ServedModel("a", 6),)),
        ({"id": "a", "max_model_len": True}, (ServedModel("a"),)),
        ({"id": "a", "max_model_len": -1}, (ServedModel("a"),)),
        ({"id": "a", "max_model_len": 2**64}, (ServedModel("a"),)),
        ({"id": "a", "max_model_len": "5"}, (ServedModel("a"),)),
        ({"id": ""}, ()),
        ({"id": 5}, ()),
        ({"name": "a"}, ()),
        ("a", ()),
    ],
)
def test_what_is_odd_in_a_list_is_passed_over(entry: object, models: tuple[ServedModel, ...]) -> None:
    assert parse_models(json.dumps({"data": [entry]}).encode()).models == models


async def test_models_beyond_the_limit_are_counted(server: Server, root: str, prober: Prober) -> None:
    server.models = [{"id": f"m{number:05}"} for number in range(MODELS_LIMIT + 2)]
    assert parse_models(json.dumps({"data": server.models[:-2]}).encode()).left_out == 0
    found = parse_models(json.dumps({"data": server.models}).encode())
    assert (len(found.models), found.left_out) == (MODELS_LIMIT, 2)
    server.models = [{"id": "m"}] * (MODELS_LIMIT + 2)
    assert await look(prober, root) == Healthy((ServedModel("m"),), left_out=2)
