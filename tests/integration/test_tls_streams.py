"""HTTP over TLS: what is sent early, at once, slowly or in great quantity."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from tests.integration.test_raw_http import NOT_HTTP
from tests.support.pki import Authority
from tests.support.tls_client import GET, LAST, ByHand, by_hand
from tests.support.tls_server import Files, client_context, run_on, serving

pytestmark = pytest.mark.integration

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_in_the_handshakes_last_packet_is_answered(
    loop_name: str, tmp_path: Path, authority: Authority, version: ssl.TLSVersion
) -> None:
    """It may be handed on before it is said that the handshake is over."""
    files = Files(tmp_path, authority)

    def use(client: ByHand) -> bytes:
        client.shake_hands(flush_last=version is ssl.TLSVersion.TLSv1_2)
        client.tls.write(GET % b"a")
        client.tls.write(LAST % b"b")
        client.flush()
        return client.read_all()

    async def main() -> None:
        async with serving(files.tls) as here:
            context = client_context(authority, maximum_version=version)
            for _ in range(20):
                said = await by_hand(here, context, use, shake=False)
                assert said.count(b"HTTP/1.1 200") == 2
            assert [scope["path"] for scope in here.scopes] == ["/a", "/b"] * 20

    run_on(loop_name, main)


def test_a_request_and_a_close_in_the_handshakes_last_packet_leave_nothing(
    loop_name: str, files: Files, authority: Authority
) -> None:
    def use(client: ByHand) -> None:
        client.shake_hands(flush_last=False)
        client.tls.write(GET % b"a")
        with contextlib.suppress(ssl.SSLWantReadError):
            client.tls.unwrap()
        client.flush()
        with contextlib.suppress(OSError):
            while client.socket.recv(65536):
                pass

    async def main() -> None:
        async with serving(files.tls) as here:
            for _ in range(20):
                await by_hand(here, client_context(authority), use, shake=False)
            async with asyncio.timeout(5):
                while here.server.counters.connections:
                    await asyncio.sleep(0.01)

    run_on(loop_name, main)


def test_a_handshake_in_small_pieces_is_one(loop_name: str, files: Files, authority: Authority) -> None:
    def use(client: ByHand) -> bytes:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flush = client.flush

        def in_pieces() -> None:
            data = client._outgoing.read()
            for start in range(0, len(data), 50):
                client.socket.sendall(data[start : start + 50])

        client.flush = in_pieces  # type: ignore[method-assign]
        client.shake_hands()
        client.flush = flush  # type: ignore[method-assign]
        return client.ask()

    async def main() -> None:
        async with serving(files.tls) as here:
            assert b"200 OK" in await by_hand(here, client_context(authority), use, shake=False)

    run_on(loop_name, main)


def test_a_long_chain_of_certificates_is_taken(
    loop_name: str, files: Files, authority: Authority, tmp_path: Path
) -> None:
    between = authority
    for number in range(8):
        between = between.intermediate(f"Intermediate {number}")
    issued = between.client(*(f"name-{number}.example" for number in range(200)))

    async def main() -> None:
        async with serving(files.tls) as here:
            context = client_context(authority, issued, tmp_path)
            assert b"200 OK" in await by_hand(here, context, ByHand.ask)
            proof = here.certificates[0]
            assert proof is not None
            assert len(proof.dns_names) == 200
            assert proof.trust_anchor == authority.der

    run_on(loop_name, main)


def test_many_requests_at_once_are_answered_in_order(loop_name: str, files: Files, authority: Authority) -> None:
    def use(client: ByHand) -> bytes:
        client.say(b"".join(GET % b"%d" % number for number in range(50)) + LAST % b"50")
        return client.read_all()

    async def main() -> None:
        async with serving(files.tls) as here:
            said = await by_hand(here, client_context(authority), use)
            places = [said.index(b'"/%d"' % number) for number in range(51)]
            assert places == sorted(places)

    run_on(loop_name, main)


def test_large_bodies_and_answers_come_whole(loop_name: str, files: Files, authority: Authority) -> None:
    size = 5_000_000

    def use(client: ByHand) -> tuple[bytes, bytes]:
        client.say(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(10):
            client.say(b"y" * (size // 10))
        echoed = client.read()
        client.say(LAST % b"large?%d" % size)
        return echoed, client.read_all()

    async def main() -> None:
        async with serving(files.tls) as here:
            echoed, answer = await by_hand(here, client_context(authority), use)
            assert b'"body_bytes": %d' % size in echoed
            assert answer.partition(b"\r\n\r\n")[2] == b"x" * size

    run_on(loop_name, main)


def test_an_answer_that_is_read_slowly_is_not_cut_off_by_its_end(
    loop_name: str, files: Files, authority: Authority
) -> None:
    """All of it is handed over and the connection closing long before it is read."""

    def use(client: ByHand) -> bytes:
        client.say(LAST % b"large?3000000")
        parts = []
        for _ in range(20):
            parts.append(client.read())
            asyncio.run(asyncio.sleep(0.1))
        parts.append(client.read_all())
        return b"".join(parts)

    async def main() -> None:
        async with serving(files.tls, send_stall_s=1) as here:
            said = await by_hand(here, client_context(authority), use)
            assert said.partition(b"\r\n\r\n")[2] == b"x" * 3_000_000
            assert here.server.counters.sends_stalled == 0

    run_on(loop_name, main)


def test_what_is_not_http_gets_a_bare_400_as_without_tls(loop_name: str, files: Files, authority: Authority) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            for what, said in NOT_HTTP.items():

                def use(client: ByHand, said: bytes = said) -> bytes:
                    client.say(said)
                    return client.read_all()

                answer = await by_hand(here, client_context(authority), use)
                assert answer == b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", what

    run_on(loop_name, main)


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("request_line", [GET, LAST])
def test_a_client_that_reads_nothing_is_dropped(
    loop_name: str, files: Files, authority: Authority, request_line: bytes, encrypted: bool
) -> None:
    async def main() -> None:
        async with serving(files.tls if encrypted else None, send_stall_s=1, idle_s=1) as here:
            context = client_context(authority) if encrypted else None
            _, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=context, limit=1000)
            writer.write(request_line % b"large?20000000")
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a stream's
            async with asyncio.timeout(6):
                while not here.server.counters.connections:
                    await asyncio.sleep(0.05)
                while here.server.counters.connections:
                    await asyncio.sleep(0.05)
            assert here.server.counters.sends_stalled == 1
            writer.transport.abort()

    run_on(loop_name, main)


def test_a_client_that_does_not_say_that_it_closes_is_not_waited_for(
    loop_name: str, files: Files, authority: Authority
) -> None:
    def use(client: ByHand) -> None:
        client.say(LAST % b"a")
        assert client.read_all()
        asyncio.run(asyncio.sleep(3))

    async def main() -> None:
        async with serving(files.tls) as here:
            held = asyncio.create_task(by_hand(here, client_context(authority), use))
            async with asyncio.timeout(3):
                while not here.scopes or here.server.counters.connections:
                    await asyncio.sleep(0.05)
            assert not held.done()
            await held

    run_on(loop_name, main)
