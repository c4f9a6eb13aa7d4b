"""What bad input gets: its status, a problem that says what is wrong, and nothing changed."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from tests.support.ports import free_port
from tests.support.process import poolmuster

pytestmark = pytest.mark.integration

JSON = "application/json"
KEY = '"cluster_id":"c","namespace":"n","dgd_name":"p"'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    folder: Path = tmp_path_factory.mktemp("bad-input")
    found = free_port()
    url = f"http://127.0.0.1:{found}/health/ready"
    lease = ("--lease-duration-secs", "2", "--heartbeat-interval-secs", "1")
    async with poolmuster("serve", "--listen", f"127.0.0.1:{found}", *lease, folder=folder, ready_url=url):
        yield found


async def raw(port: int, request: bytes) -> bytes:
    """Send ``request`` as it is, and read until the service closes or has answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(5):
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [
                line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            ]
            length = int(lengths[0]) if lengths else 0
            return head + await reader.readexactly(length)
    finally:
        writer.close()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ("", ""),
        ("not json", ""),
        ("[]", ""),
        (f'{{{KEY},"namespace":"n"}}', ""),
        (f'{{{KEY},"x":{{"a":1,"a":1}}}}', ""),
        (f'{{{KEY},"x":NaN}}', ""),
        (f'{{{KEY},"x":-Infinity}}', ""),
        (f'{{{KEY},"x":1e999}}', ""),
        (f'{{{KEY},"x":"\\ud800"}}', "/x"),
        (f'{{{KEY},"x":{"[" * 32}{"]" * 32}}}', ""),
        (f'{{{KEY},"weight":"1"}}', "/weight"),
        (f'{{{KEY},"weight":true}}', "/weight"),
        (f'{{{KEY},"weight":-1}}', "/weight"),
        (f'{{{KEY},"status":{{}}}}', "/status"),
        (f'{{{KEY},"frontend_url":"ftp://a"}}', "/frontend_url"),
        (f'{{{KEY},"frontend_url":"http://u:p@a"}}', "/frontend_url"),
        (f'{{{KEY},"models":[{{"id":"m"}},{{"id":"m","context_window":1}}]}}', "/models/1"),
        ('{"cluster_id":"c","namespace":"n"}', "/dgd_name"),
        ('{"cluster_id":" c","namespace":"n","dgd_name":"p"}', "/cluster_id"),
        ('{"cluster_id":"..","namespace":"n","dgd_name":"p"}', "/cluster_id"),
        ('{"cluster_id":"c","namespace":null,"dgd_name":"p"}', "/namespace"),
        (f'{{"cluster_id":"c","namespace":"n","dgd_name":"{"#" * 341}"}}', ""),
    ],
)
async def test_a_body_that_breaks_a_rule_is_400_with_its_place_and_changes_nothing(
    port: int, body: str, pointer: str
) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        while True:  # while it warms up, its own completeness is a change
            async with session.get("/pools") as answer:
                before = answer.headers["poolmuster-revision"]
                if answer.headers["poolmuster-complete"] == "true":
                    break
            await asyncio.sleep(0.1)
        async with session.post("/pools", data=body, headers={"content-type": JSON}) as answer:
            problem = json.loads(await answer.text())
            assert answer.status == 400
            assert answer.content_type == "application/problem+json"
            assert problem["type"] == "urn:poolmuster:invalid"
            assert problem["errors"][0]["pointer"] == pointer
        async with session.get("/pools") as answer:
            assert answer.headers["poolmuster-revision"] == before
            assert (await answer.json())["pools"] == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_content_type_that_is_not_json_is_415_with_the_header_to_send(port: int) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        for headers in ({"content-type": "text/plain"}, {"content-type": JSON, "content-encoding": "gzip"}):
            async with session.post("/pools", data=f"{{{KEY}}}", headers=headers) as answer:
                assert answer.status == 415
                assert answer.headers["accept-post"] == JSON
        async with session.post("/pools", data=f"{{{KEY}}}", skip_auto_headers=["content-type"]) as answer:
            assert "Content-Type: application/json" in (await answer.json(content_type=None))["detail"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("types", [(JSON, "text/plain"), ("text/plain", JSON), (JSON, JSON, JSON)])
async def test_two_content_types_are_415(port: int, types: tuple[str, ...]) -> None:
    lines = "".join(f"content-type: {each}\r\n" for each in types)
    answer = await raw(
        port, f"POST /pools HTTP/1.1\r\nhost: a.localhost\r\n{lines}content-length: 2\r\n\r\n{{}}".encode()
    )
    assert status_of(answer) == 415


@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_over_the_limit_is_413_before_it_is_read_whole(port: int) -> None:
    head = f"POST /pools HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\n".encode()
    told = await raw(port, head + b"content-length: 10000000\r\n\r\n{")
    assert status_of(told) == 413
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    assert status_of(await raw(port, head + b"transfer-encoding: chunked\r\n\r\n" + chunk * 5)) == 413
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.post("/pools", data=b" " * 600_000, headers={"content-type": JSON}) as answer,
    ):
        assert answer.status == 413


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /pools\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx\x00y: 1\r\n\r\n",
        b"POST /pools HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde",
        b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\nhost: localhost\r\n\r\n",
    ],
)
async def test_what_is_not_http_gets_a_bare_400(port: int, request_bytes: bytes) -> None:
    answer = await raw(port, request_bytes)
    assert status_of(answer) == 400
    assert b"content-length: 0" in answer


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("target", "status", "kind"),
    [
        ("/pools?modle=x", 400, "unknown-parameter"),
        ("/pools?label==x", 400, "invalid"),
        ("/pools?include=all", 400, "invalid"),
        ("/pools?model=%ff", 400, "invalid"),
        ("/pools/a/b/%ff", 400, "invalid"),
        ("/pools/a/%2E%2E/c", 400, "invalid"),
        ("/pools/a/%20/c", 400, "invalid"),
        ("/pools/a/b/c?x=1", 400, "unknown-parameter"),
        ("/changes?since=-1", 400, "invalid"),
        ("/changes?since=nan", 400, "invalid"),
        ("/pools/watch?x=1", 400, "unknown-parameter"),
        ("/pools/a/b/c", 404, "not-found"),
        ("/pools/", 404, "not-found"),
        ("/nothing", 404, "not-found"),
    ],
)
async def test_a_bad_target_is_named(port: int, target: str, status: int, kind: str) -> None:
    async with aiohttp.ClientSession() as session:
        url = URL(f"http://127.0.0.1:{port}{target}", encoded=True)
        async with session.get(url) as answer:
            assert answer.status == status
            assert json.loads(await answer.text())["type"] == f"urn:poolmuster:{kind}"
        async with session.head(url) as answer:
            assert answer.status == status


@pytest.mark.asyncio(loop_scope="module")
async def test_other_methods_are_405_with_allow_and_other_formats_406(port: int) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        for method, path, allow in (
            ("PUT", "/pools", "GET, HEAD, POST"),
            ("OPTIONS", "/pools", "GET, HEAD, POST"),
            ("POST", "/pools/a/b/c", "DELETE, GET, HEAD"),
            ("DELETE", "/status", "GET, HEAD"),
        ):
            async with session.request(method, path) as answer:
                assert answer.status == 405
                assert answer.headers["allow"] == allow
        async with session.get("/pools/watch", headers={"accept": "text/html"}) as answer:
            assert answer.status == 406


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("host", [b"host: evil.example", b"host: localhost\r\nhost: localhost", b"x: y", b"host: a b"])
async def test_an_anonymous_loopback_service_answers_to_loopback_names_only(port: int, host: bytes) -> None:
    assert status_of(await raw(port, b"GET /pools HTTP/1.1\r\n" + host + b"\r\n\r\n")) == 421
    for good in (b"localhost", b"127.0.0.1:1", b"[::1]:8080", b"LOCALHOST.", b"localhost \t"):
        assert status_of(await raw(port, b"GET /pools HTTP/1.1\r\nhost: " + good + b"\r\n\r\n")) == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_encoded_slashes_belong_to_the_key(port: int) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        pool = {"cluster_id": "a/b", "namespace": "%2F", "dgd_name": "ü#", "relay_id": "r"}
        async with session.post("/pools", json=pool) as answer:
            assert answer.status == 201
        url = URL(f"http://127.0.0.1:{port}/pools/a%2Fb/%252F/%C3%BC%23", encoded=True)
        async with session.get(url) as answer:
            assert (await answer.json())["pool"]["dgd_name"] == "ü#"
        async with session.delete(url.with_query(relay_id="r")) as answer:
            assert answer.status == 204
        async with session.post("/pools", json=pool) as answer:
            assert answer.status == 409
