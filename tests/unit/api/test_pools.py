"""Registering, leaving, and one pool, as the HTTP interface shows them."""

import json
from collections.abc import AsyncIterator

import pytest

from poolmuster.model.key import PoolKey
from poolmuster.programs.settings.serve import ServeLimits
from tests.support.registrations import document, key
from tests.support.service import Service, path_of


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Service() as service:
        yield service


async def test_registering_is_201_and_renewing_200_with_the_terms_of_the_lease(service: Service) -> None:
    answer = await service.register("a", relay_id="r")
    assert answer.status == 201
    assert answer.json["lease"] == {
        "duration_ms": 15_000,
        "heartbeat_interval_ms": 5_000,
        "ends_at_ms": service.clock.wall_ms() + 15_000,
    }
    assert answer.json["routers"] == []
    assert (await service.register("a", relay_id="r")).status == 200
    await service.clock.advance(15_000)
    assert (await service.register("a", relay_id="r")).status == 201


async def test_a_heartbeat_after_leaving_is_409(service: Service) -> None:
    await service.register("a", relay_id="r")
    assert (await service.leave("a", query="?relay_id=r&reason=relay_stopping")).status == 204
    answer = await service.register("a", relay_id="r")
    assert (answer.status, answer.json["type"]) == (409, "urn:poolmuster:relay-left")
    assert (await service.register("a", relay_id="r2")).status == 201


async def test_leaving_is_204_known_or_not(service: Service) -> None:
    assert (await service.leave("nobody")).status == 204
    await service.register("a", relay_id="r")
    assert (await service.leave("a", query="?relay_id=other")).status == 204
    assert len((await service.get()).json["pools"]) == 1
    answer = await service.leave("a")
    assert (answer.status, answer.body) == (204, b"")
    assert (await service.get()).json["pools"] == []


@pytest.mark.parametrize("query", ["?reason=bored", "?relay_id=", "?relay=r", "?relay_id=a&relay_id=b", "?reason"])
async def test_a_bad_wish_to_leave_changes_nothing(service: Service, query: str) -> None:
    await service.register("a", relay_id="a")
    answer = await service.leave("a", query=query)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
    assert len((await service.get()).json["pools"]) == 1


KEYS = [
    PoolKey("c/d", "n%2F", "a#b"),
    PoolKey("..c", "\u00e9\U0001f600", "x y"),
    PoolKey("watch", "+", "?&=;"),
    PoolKey("a", "b\\c", "%"),
]


@pytest.mark.parametrize("which", KEYS, ids=str)
async def test_c20_every_key_has_its_own_path(service: Service, which: PoolKey) -> None:
    content = json.dumps(dict(zip(("cluster_id", "namespace", "dgd_name"), which.parts, strict=True))).encode()
    assert (await service.post(content)).status == 201
    shown = (await service.get(path_of(which))).json
    assert shown["listed"] is True
    assert tuple(shown["key"].values()) == which.parts
    assert (await service.request("DELETE", path_of(which))).status == 204
    assert (await service.get()).json["pools"] == []


@pytest.mark.parametrize("path", ["/pools/a/b", "/pools/a/b/c/d", "/pools/", "/Pools", "/pools/a"])
async def test_what_is_no_path_is_404(service: Service, path: str) -> None:
    answer = await service.get(path)
    assert (answer.status, answer.json["type"]) == (404, "urn:poolmuster:not-found")


@pytest.mark.parametrize(
    "path",
    [
        "/pools/a//c",
        "/pools/a/b/",
        "/pools///",
        "/pools/%2E/b/c",
        "/pools/a/%FF/c",
        "/pools/a/%20b/c",
        "/pools/a/b/%2E%2E",
    ],
)
async def test_a_path_that_can_be_no_key_is_400(service: Service, path: str) -> None:
    assert (await service.get(path)).status == 400
    assert (await service.request("DELETE", path)).status == 400


async def test_a_relay_id_of_any_length_is_400(service: Service) -> None:
    """It is kept for an hour after the pool has left."""
    assert (await service.post(json.dumps(document("a", relay_id="é" * 256)).encode())).status == 201
    answer = await service.post(json.dumps(document("a", relay_id="r" * 257)).encode())
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (400, "/relay_id")
    answer = await service.request("DELETE", f"{path_of(key())}?relay_id={'r' * 257}")
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (400, "relay_id")
    assert (await service.request("DELETE", f"{path_of(key())}?relay_id={'%C3%A9' * 256}")).status == 204
    assert (await service.get()).json["pools"] == []


async def test_one_pool_shows_lease_conflict_and_last_changes(service: Service) -> None:
    for number in range(12):
        await service.register("a", relay_id="AB"[number % 2], weight=number)
    shown = (await service.get(path_of(key()))).json
    assert shown["listed"] is True
    assert shown["pool"] == document("a", weight=11)
    assert shown["lease"] == {
        "duration_ms": 15_000,
        "ends_at_ms": service.clock.wall_ms() + 15_000,
        "relay_id": "B",
    }
    assert shown["conflict"]["relay_ids"] == ["A", "B"]
    assert shown["removal"] is None
    assert [change["pool"]["weight"] for change in shown["changes"]] == list(range(2, 12))
    assert (shown["complete"], shown["revision"]) == (False, "boot.12")
    (conflict,) = (await service.get("/status")).json["conflicts"]
    assert conflict["key"] == {"cluster_id": "c", "namespace": "n", "dgd_name": "a"}
    assert "conflict" not in json.dumps((await service.get()).json)


async def test_a_pool_that_is_gone_is_shown_with_why_while_that_is_remembered(service: Service) -> None:
    assert (await service.get(path_of(key()))).status == 404
    await service.register("a")
    await service.clock.advance(15_000)
    shown = (await service.get(path_of(key()))).json
    assert (shown["listed"], shown["pool"], shown["lease"]) == (False, None, None)
    assert shown["removal"]["cause"] == "expired"
    assert [change["type"] for change in shown["changes"]] == ["added", "removed"]
    service.clock.jump(3_600_000)
    assert (await service.get(path_of(key()))).status == 404


async def test_a_long_detail_is_cut(service: Service) -> None:
    await service.register("a")
    await service.leave("a", query="?detail=" + "x" * 5_000)
    assert len((await service.get(path_of(key()))).json["removal"]["detail"]) == 1_000


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (b"", ""),
        (b"not json", ""),
        (b"[]", ""),
        (b'{"cluster_id":"c","cluster_id":"c","namespace":"n","dgd_name":"a"}', ""),
        (b'{"cluster_id":"c","namespace":"n","dgd_name":"a","x":NaN}', ""),
        (b'{"cluster_id":"c","namespace":"n","dgd_name":"a","x":1e999}', ""),
        (b'{"cluster_id":"c","namespace":"n","dgd_name":"a","x":["\\ud800"]}', "/x/0"),
        (b'{"cluster_id":"c","namespace":"n","dgd_name":"a","x":' + b"[" * 40 + b"]" * 40 + b"}", ""),
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
        (b'{"cluster_id":"c","namespace":"n","dgd_name":"a","weight":-1}', "/weight"),
        (b'{"cluster_id":"c","namespace":"n","dgd_name":"a","status":{}}', "/status"),
        (b'{"namespace":"n","dgd_name":"a"}', "/cluster_id"),
        (b'{"cluster_id":" c","namespace":"n","dgd_name":"a"}', "/cluster_id"),
        (b'{"cluster_id":"c","namespace":"n","dgd_name":"a","frontend_url":"ftp://x"}', "/frontend_url"),
        (b'{"cluster_id":"c","namespace":"n","dgd_name":"' + b"a" * 1_100 + b'"}', ""),
        (
            b'{"cluster_id":"c","namespace":"n","dgd_name":"a","models":[{"id":"m"},{"id":"m","context_window":1}]}',
            "/models/1",
        ),
        (b"\xff", ""),
    ],
)
async def test_bad_input_is_400_names_the_place_and_changes_nothing(
    service: Service, content: bytes, pointer: str
) -> None:
    answer = await service.post(content)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json["status"] == 400
    assert answer.json["type"].startswith("urn:poolmuster:")
    assert answer.json["errors"][0]["pointer"] == pointer
    assert answer.headers["poolmuster-revision"] == "boot.0"


async def test_what_is_not_json_by_its_content_type_is_415_with_the_header_to_send(service: Service) -> None:
    for content_type in ("text/plain", "", "application/x-www-form-urlencoded"):
        answer = await service.post(b"{}", content_type)
        assert answer.status == 415
        assert "Content-Type: application/json" in answer.json["detail"]
    assert (await service.post(json.dumps(document()).encode(), "application/json; charset=utf-8")).status == 201


async def test_a_body_over_the_limit_is_413() -> None:
    async with Service(limits=ServeLimits(body_bytes=100)) as service:
        assert (await service.register("a", x="x" * 100)).status == 413
        metrics = (await service.get("/metrics")).body
        assert b'poolmuster_http_refusals_total{limit="bodies_too_large"} 1.0' in metrics
        assert (await service.register("a")).status == 201


async def test_beyond_a_limit_is_429_and_renewals_go_on() -> None:
    async with Service(limits=ServeLimits(pools=1)) as service:
        await service.register("a")
        answer = await service.register("b")
        assert (answer.status, answer.json["type"]) == (429, "urn:poolmuster:limit-reached")
        assert answer.headers["retry-after"] == "5"
        assert (await service.register("a")).status == 200


@pytest.mark.parametrize(
    ("path", "allow"),
    [("/pools", "GET, HEAD, POST"), ("/pools/watch", "GET, HEAD"), ("/pools/a/b/c", "DELETE, GET, HEAD")],
)
async def test_another_method_is_405_with_those_that_are(service: Service, path: str, allow: str) -> None:
    answer = await service.request("PATCH", path)
    assert (answer.status, answer.headers["allow"]) == (405, allow)
