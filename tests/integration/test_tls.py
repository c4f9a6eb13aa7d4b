"""TLS on real sockets, on both event loops: what gets in, what does not, and what is said of it."""

import asyncio
import contextlib
import datetime as dt
import errno
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.support.pki import Authority, Issued, from_now
from tests.support.tls_server import Files, Serving, client_context, run_on, serving

pytestmark = pytest.mark.integration

GET = b"GET /%b HTTP/1.1\r\nhost: localhost\r\n\r\n"
DAY = dt.timedelta(days=1)


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(here: Serving, context: ssl.SSLContext | None, **more: Any) -> Pair:
    return await asyncio.open_connection("127.0.0.1", here.port, ssl=context, **more)


async def ask(pair: Pair, path: bytes = b"") -> Any:
    reader, writer = pair
    writer.write(GET % path)
    return await answer(reader)


async def answer(reader: asyncio.StreamReader) -> Any:
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        body = await reader.readexactly(int(length[1]))
    return json.loads(body) if body.startswith(b"{") else body


async def close(*pairs: Pair) -> None:
    for _, writer in pairs:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def refused(here: Serving, context: ssl.SSLContext) -> None:
    """Try, and be refused: with TLS 1.3 a client learns of it with the first answer that does not come."""
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await ask_once(here, context)


async def ask_once(here: Serving, context: ssl.SSLContext) -> None:
    pair = await connect(here, context, server_hostname="localhost")
    try:
        await ask(pair)
    finally:
        await close(pair)


def test_requests_are_answered_over_one_connection(loop_name: str, files: Files, authority: Authority) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            pair = await connect(here, client_context(authority), server_hostname="localhost")
            assert await ask(pair, b"a") == {"path": "/a", "scheme": "https", "body_bytes": 0}
            assert (await ask(pair, b"b"))["path"] == "/b"
            assert here.certificates == [None, None]
            ssl_object = pair[1].get_extra_info("ssl_object")
            assert ssl_object.version() == "TLSv1.3"
            assert here.server.counters.connections == 1
            await close(pair)

    run_on(loop_name, main)


@pytest.mark.parametrize("server_hostname", ["localhost", ""])
def test_a_server_name_is_not_needed(loop_name: str, files: Files, authority: Authority, server_hostname: str) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            context = client_context(authority, check_hostname=bool(server_hostname))
            pair = await connect(here, context, server_hostname=server_hostname)
            assert (await ask(pair, b"a"))["path"] == "/a"
            await close(pair)

    run_on(loop_name, main)


def test_a_clients_certificate_is_a_proof(loop_name: str, files: Files, authority: Authority, tmp_path: Path) -> None:
    between = authority.intermediate()
    ends = from_now(DAY / 2).replace(microsecond=0)
    issued = between.client("a.example", "b.example", uris=["spiffe://prod/x"], not_after=ends)

    async def main() -> None:
        async with serving(files.tls) as here:
            context = client_context(authority, issued, tmp_path)
            pair = await connect(here, context, server_hostname="localhost")
            await ask(pair)
            await ask(pair)
            await close(pair)
        first, second = here.certificates
        assert first is not None
        assert first is second, "worked out once a connection"
        assert first.uris == ("spiffe://prod/x",)
        assert first.dns_names == ("a.example", "b.example")
        assert first.trust_anchor == authority.der
        assert first.expires_at_ms == ends.timestamp() * 1000

    run_on(loop_name, main)


def test_a_certificate_counts_no_longer_than_the_chain_it_hangs_on(
    files: Files, authority: Authority, tmp_path: Path
) -> None:
    ends = from_now(DAY / 4).replace(microsecond=0)
    between = Authority("Short-lived", parent=authority, not_after=ends)

    async def main() -> None:
        async with serving(files.tls) as here:
            pair = await connect(
                here, client_context(authority, between.client("a"), tmp_path), server_hostname="localhost"
            )
            await ask(pair)
            await close(pair)
        proof = here.certificates[0]
        assert proof is not None
        assert proof.expires_at_ms == ends.timestamp() * 1000

    run_on("uvloop", main)


def test_a_file_may_name_an_intermediate_alone(files: Files, authority: Authority, tmp_path: Path) -> None:
    ours, other = authority.intermediate("Ours"), authority.intermediate("Other")

    async def main() -> None:
        async with serving(files.tls) as here:
            for issuer, ok in ((ours, True), (other, False)):
                context = client_context(authority, issuer.client("a"), tmp_path)
                await (ask_once if ok else refused)(here, context)
            await here.failed(unknown_authority=1)
        proof = here.certificates[0]
        assert proof is not None
        assert proof.trust_anchor == ours.der

    files.trust(ours.pem)
    assert files.refresh()
    run_on("uvloop", main)


def test_without_authorities_nobody_is_asked_for_a_certificate(authority: Authority, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(Files(tmp_path, authority).tls) as here:
            await ask_once(here, client_context(authority, Authority("Unknown").client("a"), tmp_path))
        assert "certificate" not in here.scopes[0]

    run_on("uvloop", main)


def on_day(authority: Authority, number: int) -> Issued:
    """A certificate that counts for one day, so many days from now."""
    return authority.client("a", not_before=from_now(number * DAY), not_after=from_now((number + 1) * DAY))


REFUSED: dict[str, Callable[[Authority], Issued]] = {
    "unknown_authority": lambda authority: Authority("Another").client("a"),
    "expired_certificate": lambda authority: on_day(authority, -2),
    "not_yet_valid": lambda authority: on_day(authority, 1),
    "bad_certificate": lambda authority: authority.server("a"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_certificate_that_does_not_count_is_refused_and_the_log_says_why(
    loop_name: str,
    files: Files,
    authority: Authority,
    tmp_path: Path,
    reason: str,
    lines: list[Any],
) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            issued = REFUSED[reason](authority)
            await refused(here, client_context(authority, issued, tmp_path))
            await here.failed(**{reason: 1})
            assert here.scopes == []

    run_on(loop_name, main)
    assert [(line["reason"], line["client"], line["log_level"]) for line in lines] == [(reason, "127.0.0.1", "warning")]
    assert "certificate" in lines[0]["detail"]


def test_a_client_that_does_not_trust_this_server_shows(loop_name: str, files: Files, lines: list[Any]) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            await refused(here, client_context(Authority("Another")))
            await here.failed(gone=1)
            with pytest.raises(ssl.SSLCertVerificationError):  # unlike asyncio's clients this one says why it goes
                await asyncio.to_thread(shake_hands, here.port, client_context(Authority("Another")))
            await here.failed(gone=1, refused_by_client=1)

    run_on(loop_name, main)
    assert lines[0]["detail"].endswith("as one may that does not accept this server's certificate")
    assert lines[1]["detail"] == "the client does not accept this server's certificate (unknown ca)"


def shake_hands(port: int, context: ssl.SSLContext) -> None:
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost"),
    ):
        pass


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_tls_1_1_is_refused(loop_name: str, files: Files, authority: Authority, lines: list[Any]) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            context = client_context(authority)
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
            await refused(here, context)
            await here.failed(no_shared_version=1)

    run_on(loop_name, main)


@pytest.mark.parametrize("said", [GET % b"pools", b"POST /pools HTTP/1.1\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n"])
def test_plain_http_gets_400_and_the_log_names_it(loop_name: str, files: Files, said: bytes, lines: list[Any]) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            pair = await connect(here, None)
            pair[1].write(said)
            head, _, sentence = (await pair[0].read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n")
            assert b"content-length: %d" % len(sentence) in head
            assert sentence == b"This port speaks HTTPS: begin the URL with https://.\n"
            await close(pair)
            await here.failed(no_tls=1)

    run_on(loop_name, main)
    assert lines[0]["detail"] == "plain HTTP on the TLS port"


def test_what_is_neither_is_closed_too(loop_name: str, files: Files, lines: list[Any]) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            for said in (b"\0" * 100, b"SSH-2.0-OpenSSH\r\n", b"\x16\x03\x01\xff\xff" + b"a" * 50):
                pair = await connect(here, None)
                pair[1].write(said)
                assert await pair[0].read() in (
                    b"",
                    *[b"\x15\x03\x01\x00\x02\x02" + bytes([each]) for each in range(99)],
                )
                await close(pair)
            await here.failed(no_tls=3)

    run_on(loop_name, main)


def test_a_handshake_that_never_ends_is_dropped_in_time(
    loop_name: str, files: Files, authority: Authority, lines: list[Any]
) -> None:
    async def main() -> None:
        async with serving(files.tls, head_s=0.3) as here:
            silent, half = await connect(here, None), await connect(here, None)
            half[1].write(client_hello()[:40])
            async with asyncio.timeout(2):
                assert await silent[0].read() == b""
                assert await half[0].read() == b""
            await close(silent, half)
            await here.failed(timeout=2)

    run_on(loop_name, main)


def test_who_only_looks_whether_the_port_is_open_has_not_failed(loop_name: str, files: Files, lines: list[Any]) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            nothing, half, reset = [await connect(here, None) for _ in range(3)]
            half[1].write(client_hello()[:40])
            reset[1].write(client_hello())
            await asyncio.sleep(0.05)
            nothing[1].close()
            half[1].close()
            reset[1].transport.abort()
            await here.failed(gone=2)
            await close(nothing, half, reset)

    run_on(loop_name, main)
    assert [line["reason"] for line in lines] == ["gone"], "the second came within the same second"


def test_handshakes_count_against_the_connections(loop_name: str, files: Files, authority: Authority) -> None:
    async def main() -> None:
        async with serving(files.tls, connections=3) as here:
            context = client_context(authority)
            inside = await connect(here, context, server_hostname="localhost")
            waiting = [await connect(here, None) for _ in range(2)]
            while here.server.counters.handshakes < 2:
                await asyncio.sleep(0.01)
            await refused(here, context)
            assert here.server.counters.refused_connections == 1
            assert (await ask(inside, b"a"))["path"] == "/a"
            await close(*waiting)
            await here.failed()
            again = await connect(here, context, server_hostname="localhost")
            await ask(again)
            await close(inside, again)

    run_on(loop_name, main)


def test_a_stop_drops_handshakes_and_ends_connections_in_good_order(
    loop_name: str, files: Files, authority: Authority
) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            half = await connect(here, None)
            half[1].write(client_hello()[:40])
            pair = await connect(here, client_context(authority), server_hostname="localhost")
            await ask(pair)
            while here.server.counters.handshakes == 0:
                await asyncio.sleep(0.01)
            async with asyncio.timeout(1):
                await here.server.stop(3)
                assert await pair[0].read() == b"", "a close that was announced, else this raises"
                with contextlib.suppress(ConnectionResetError):
                    assert await half[0].read() == b""
            await close(half, pair)

    run_on(loop_name, main)


def test_failures_from_one_address_are_a_line_a_second(files: Files, lines: list[Any]) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            for _ in range(50):
                pair = await connect(here, None)
                pair[1].write(GET)
                await pair[0].read()
                await close(pair)
            await here.failed(no_tls=50)
            async with asyncio.timeout(5):
                while len(lines) < 2:
                    await asyncio.sleep(0.05)

    run_on("uvloop", main)
    assert sum(line.get("left_out", 0) + (line["event"] == "A TLS handshake failed") for line in lines) == 50
    assert len(lines) <= 4


def test_connections_are_accepted_again_after_file_descriptors_ran_out(
    loop_name: str, files: Files, authority: Authority, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    def fail_once(listening: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(listening)

    async def main() -> None:
        async with serving(files.tls) as here:
            await ask_once(here, client_context(authority))
        assert len(here.scopes) == 1

    monkeypatch.setattr("poolmuster.http.tls_listener.ACCEPT_RETRY_S", 0.05)
    monkeypatch.setattr(socket.socket, "accept", fail_once)
    run_on(loop_name, main)
    assert [line["event"] for line in lines] == ["Connections cannot be accepted"]


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()
