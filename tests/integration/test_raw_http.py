"""What clients send that are broken, old or hostile, byte by byte: its answer, and that nothing was changed by it."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from tests.support.ports import free_port
from tests.support.process import poolmuster
from tests.support.registrations import body as registration_body

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

HOST = b"host: localhost\r\n"
POST = b"POST /pools HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
OWN_HEADERS = (b"poolmuster-revision: ", b"poolmuster-complete: ", b"poolmuster-instance: ")
QUIET_S = 0.2
"""How long nothing comes after an answer before it counts as the only one."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    found = free_port()
    limits = ("--limit-head-secs", "1", "--limit-body-secs", "1")
    async with poolmuster(
        "serve",
        *("--listen", f"127.0.0.1:{found}"),
        *limits,
        folder=tmp_path_factory.mktemp("raw-http"),
        ready_url=f"http://127.0.0.1:{found}/health/ready",
    ):
        yield found


async def say(port: int, *parts: bytes, quiet_s: float = 5.0) -> tuple[bytes, bool]:
    """Send ``parts``, a moment apart; read until the end, or until nothing came for ``quiet_s``. Says which it was."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.1 if len(parts) > 1 else 0)
        with contextlib.suppress(ConnectionResetError):
            while True:
                data = await asyncio.wait_for(reader.read(65536), quiet_s if said else 5.0)
                if not data:
                    break
                said += data
    except TimeoutError:
        return said, False
    finally:
        writer.close()
    return said, True


def statuses(said: bytes) -> list[int]:
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", said)]


async def revision(port: int) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/pools") as answer:
        return answer.headers["poolmuster-revision"].partition(".")[0] + await answer.text()


def get(target: bytes, *more: bytes, version: bytes = b"HTTP/1.1", host: bytes = HOST) -> bytes:
    lines = b"".join(line + b"\r\n" for line in more)
    return b"GET %b %b\r\n%b%b\r\n" % (target, version, host, lines)


NOT_HTTP = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a method there is not": b"FOO /pools HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a method in small letters": b"get /pools HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "HTTP/0.9": b"GET /health/live\r\n\r\n",
    "HTTP/1.2": get(b"/health/live", version=b"HTTP/1.2"),
    "HTTP/2 by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a target without a slash": get(b"pools"),
    "a space in the target": get(b"/po ols"),
    "NUL in the target": get(b"/po\0ols"),
    "not ASCII in the target": get(b"/pools?model=\xc3\xbc"),
    "NUL in a header": get(b"/health/live", b"x: a\0b"),
    "a lone CR in a header": get(b"/health/live", b"x: a\rb: c"),
    "lines that end in LF": b"GET /health/live HTTP/1.1\nhost: localhost\n\n",
    "a folded header": get(b"/health/live", b"x: a", b" b"),
    "a space before the colon": get(b"/health/live", b"x : y"),
    "Content-Length and Transfer-Encoding": POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding and Content-Length": POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "a transfer encoding there is not": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a transfer coding besides chunked": POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "two transfer codings": POST + b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, but not last": POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a length with a sign": POST + b"content-length: +2\r\n\r\n{}",
    "a negative length": POST + b"content-length: -2\r\n\r\n{}",
    "two lengths in one": POST + b"content-length: 2, 2\r\n\r\n{}",
    "one length twice": POST + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
    "a length beyond all numbers": POST + b"content-length: 99999999999999999999999\r\n\r\n{}",
    "a chunk without a size": POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
    "a chunk that ends in LF": POST + b"transfer-encoding: chunked\r\n\r\n2;a\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", NOT_HTTP.values(), ids=NOT_HTTP)
async def test_what_is_not_http_gets_a_bare_400_and_the_connection_ends(port: int, request_bytes: bytes) -> None:
    before = await revision(port)
    said, ended = await say(port, request_bytes)
    assert said == b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    assert ended
    assert (await revision(port)).partition('"sources"')[0] == before.partition('"sources"')[0]


ODD = {
    "TRACE": (b"TRACE /pools HTTP/1.1\r\nhost: localhost\r\n\r\n", 405),
    "OPTIONS of all": (b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n", 404),
    "an absolute target": (get(b"http://localhost/status"), 200),
    "an absolute target with IPv6": (get(b"http://[::1]:80/status"), 200),
    "an absolute target without a path": (get(b"http://localhost?"), 200),
    "an absolute target of another host": (get(b"http://evil.example/status"), 421),
    "another host in an absolute target's header": (
        get(b"http://localhost/status", host=b"host: evil.example\r\n"),
        200,
    ),
    "an absolute target and two hosts": (get(b"http://localhost/status", HOST[:-2]), 421),
    "no host": (get(b"/health/live", host=b""), 421),
    "an empty host": (get(b"/health/live", host=b"host:\r\n"), 421),
    "a host with user information": (get(b"/health/live", host=b"host: localhost@evil\r\n"), 421),
    "a host with a port that is none": (get(b"/health/live", host=b"host: localhost:x\r\n"), 421),
    "a host as one number": (get(b"/health/live", host=b"host: 2130706433\r\n"), 421),
    "another host in HTTP/1.0": (get(b"/pools", version=b"HTTP/1.0", host=b"host: evil.example\r\n"), 421),
    "dots are not followed": (get(b"/pools/../status"), 404),
    "dots as a part of a key": (get(b"/pools/a/../c"), 400),
    "two slashes": (get(b"//pools"), 404),
    "a percent sign alone": (get(b"/pools/a/b/%zz"), 400),
    "a percent sign at the end": (get(b"/pools/a/b/c%"), 400),
    "a percent sign alone in the query": (get(b"/pools?model=%zz"), 400),
    "a parameter without a value": (get(b"/pools?model"), 400),
    "parameters with nothing between": (get(b"/pools?model=a&&model=b"), 400),
    "a header that is not ASCII": (get(b"/health/live", b"x: \xff\xfe"), 200),
    "an ETag that is not ASCII": (get(b"/pools", b"if-none-match: \xff"), 200),
    "a content type that is not ASCII": (POST.replace(b"application", b"\xff") + b"content-length: 2\r\n\r\n{}", 415),
    "formats that are nonsense": (get(b"/pools/watch", b"accept: ;;;,q=,text/html;q=0"), 406),
    "a body of a GET": (get(b"/health/live", b"content-length: 3") + b"abc", 200),
    "trailers": (POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: y\r\n\r\n", 400),
}


@pytest.mark.parametrize(("request_bytes", "status"), ODD.values(), ids=ODD)
async def test_what_is_odd_has_one_meaning(port: int, request_bytes: bytes, status: int) -> None:
    said, _ = await say(port, request_bytes, quiet_s=QUIET_S)
    assert statuses(said) == [status]
    assert all(name in said for name in OWN_HEADERS)
    if status >= 400:
        assert b"content-type: application/problem+json\r\n" in said


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
async def test_no_protocol_is_upgraded_to(port: int, upgrade: bytes) -> None:
    said, ended = await say(port, get(b"/health/live", b"connection: upgrade", b"upgrade: " + upgrade))
    assert statuses(said) == [200]
    assert ended


async def test_http_1_0_gets_no_chunks_and_its_connection_ends(port: int) -> None:
    said, ended = await say(port, get(b"/pools?include=lease", version=b"HTTP/1.0", host=b""))
    head, _, body = said.partition(b"\r\n\r\n")
    assert ended
    assert b"transfer-encoding" not in head
    assert "pools" in json.loads(body)


async def test_a_watcher_that_goes_is_noticed_though_a_request_waits_behind_its_watch(port: int) -> None:
    for ending in (asyncio.StreamWriter.close, lambda writer: writer.transport.abort()):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get(b"/pools/watch") + get(b"/health/live"))
        await asyncio.sleep(QUIET_S)
        ending(writer)
    async with aiohttp.ClientSession() as session, asyncio.timeout(3):
        watchers = -1
        while watchers != 0:
            async with session.get(f"http://127.0.0.1:{port}/status") as answer:
                watchers = (await answer.json())["watchers"]


async def test_http_1_0_is_not_told_to_continue(port: int) -> None:
    request = POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}"
    said, _ = await say(port, request)
    assert statuses(said) == [400]


async def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    said, ended = await say(
        port, get(b"/health/live") + get(b"/nothing") + get(b"/routers", b"connection: close") + get(b"/status")
    )
    assert statuses(said) == [200, 404, 200]
    assert ended


async def test_a_request_is_answered_though_garbage_follows_it(port: int) -> None:
    """Were the 400 of the garbage sent in its place, a relay would hold for refused what was stored."""
    document = registration_body("before-garbage")
    said, ended = await say(
        port, POST + b"content-length: %d\r\n\r\n" % len(document) + document + b"\0garbage\r\n\r\n"
    )
    assert statuses(said) == [201]
    assert ended


async def test_a_stream_goes_on_though_garbage_follows_its_request(port: int) -> None:
    """Neither the garbage's 400, nor the 408 of a head that stays unfinished, is written into the stream."""
    for follows in (b"\0garbage\r\n\r\n", b"GET /pools HT"):
        watch = get(b"/pools/watch", b"accept: application/x-ndjson")
        said, ended = await say(port, watch, follows, quiet_s=2.5)
        assert statuses(said) == [200]
        assert not ended


async def test_100_continue_comes_only_where_the_body_is_wanted(port: int) -> None:
    expecting = b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    document = registration_body("continued")
    said, _ = await say(port, POST + expecting % len(document), document, quiet_s=QUIET_S)
    assert statuses(said) == [100, 201]
    said, ended = await say(port, POST + expecting % 2_000_000)
    assert statuses(said) == [413]
    assert ended
    said, _ = await say(port, POST.replace(b"application/json", b"text/plain") + expecting % 2, quiet_s=QUIET_S)
    assert statuses(said) == [415]


async def test_a_body_that_breaks_its_own_encoding_is_400_though_it_began_well(port: int) -> None:
    said, ended = await say(port, POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", b"zz\r\n")
    assert statuses(said) == [400]
    assert ended


async def test_what_follows_a_body_is_bounded_like_a_head(port: int) -> None:
    chunk = POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"
    for endless in (b"0\r\nx: ", b"2;"):
        said, ended = await say(port, chunk, endless + b"y" * 20_000)
        assert statuses(said) == [431]
        assert ended


async def test_answers_before_any_request_was_understood_bear_the_headers_too(port: int) -> None:
    too_large = get(b"/pools", b"x: " + b"y" * 20_000)
    for request_bytes, status in ((too_large, 431), (b"GET /pools HTTP/1.1\r\nhost:", 408), (POST, 408)):
        said, ended = await say(port, request_bytes)
        assert statuses(said) == [status]
        assert ended
        assert all(name in said for name in OWN_HEADERS)
