"""HTTP over TLS: what is sent early, at once, slowly or in great quantity, and what no session may do."""

import asyncio
import contextlib
import gc
import resource
import socket
import ssl
import struct
import subprocess
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from poolmuster.httpd.protocol import BoundedProtocol
from tests.integration.test_raw_http import NOT_HTTP
from tests.support.pki import Authority
from tests.support.tls_server import LOOPS, Files, Serving, client_context, run_on, serving

pytestmark = pytest.mark.integration

GET = b"GET /%b HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"GET /%b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.fixture(params=LOOPS)
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> Files:
    return Files(tmp_path, authority, client_ca=authority.pem)


class ByHand:
    """A client over a blocking socket that decides what goes into which packet."""

    def __init__(self, port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost", session=session)

    def shake_hands(self, *, flush_last: bool = True) -> None:
        """Without ``flush_last`` the client's last flight waits, to go out with what is written next."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self._receive()
            else:
                break
        if flush_last:
            self.flush()

    def flush(self) -> None:
        if data := self._outgoing.read():
            self.socket.sendall(data)

    def say(self, data: bytes) -> None:
        self.tls.write(data)
        self.flush()

    def read(self) -> bytes:
        """Some bytes, or none when the server said that it closes. Raises where it just ended."""
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                self._receive()
            except ssl.SSLZeroReturnError:
                return b""

    def read_all(self) -> bytes:
        parts = []
        while part := self.read():
            parts.append(part)
        return b"".join(parts)

    def ask(self, path: bytes = b"") -> bytes:
        self.say(GET % path)
        return self.read()

    def shake_hands_and_ask(self) -> bytes:
        self.shake_hands()
        return self.ask()

    def close(self) -> None:
        """Close in good order: say so, and wait for the server's word."""
        with contextlib.suppress(ssl.SSLError, OSError):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.unwrap()
            self.flush()
            self._receive()
        self.socket.close()

    def _receive(self) -> None:
        data = self.socket.recv(65536)
        self._incoming.write(data) if data else self._incoming.write_eof()


async def by_hand(here: Serving, context: ssl.SSLContext, use: Callable[[ByHand], Any], *, shake: bool = True) -> Any:
    def work() -> Any:
        client = ByHand(here.port, context)
        try:
            if shake:
                client.shake_hands()
            return use(client)
        finally:
            client.socket.close()

    return await asyncio.to_thread(work)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_in_the_handshakes_last_packet_is_answered(
    loop_name: str, files: Files, authority: Authority, version: ssl.TLSVersion
) -> None:
    """It may be handed on before it is said that the handshake is over."""

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
            assert proof.anchor == authority.der

    run_on(loop_name, main)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_session_is_resumed(
    loop_name: str, files: Files, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """While its connection is open, after it closed in good order, with and without a certificate."""
    anybody = client_context(authority, maximum_version=version)
    somebody = client_context(authority, authority.client("a"), tmp_path, maximum_version=version)

    def work(port: int) -> None:
        for context in (anybody, somebody):
            first = ByHand(port, context)
            first.shake_hands()
            assert b"200 OK" in first.ask()
            for closed in (False, True):
                if closed:
                    first.close()
                again = ByHand(port, context, first.tls.session)
                again.shake_hands()
                assert b"200 OK" in again.ask()
                assert not again.tls.session_reused
                assert again.tls.session is None or not again.tls.session.has_ticket
                again.close()

    async def main() -> None:
        async with serving(files.tls) as here:
            await asyncio.to_thread(work, here.port)
            assert [proof is not None for proof in here.certificates] == [False] * 3 + [True] * 3

    run_on(loop_name, main)


def test_a_session_of_a_handshake_that_ran_beside_is_not_resumed_either(
    loop_name: str, files: Files, authority: Authority
) -> None:
    """Two handshakes that were begun with one context: the second brings the first one's session."""
    context = client_context(authority, maximum_version=ssl.TLSVersion.TLSv1_2)

    def work(port: int) -> None:
        first, probe = ByHand(port, context), socket.create_connection(("127.0.0.1", port))
        probe.sendall(b"\x16\x03\x01")  # the second has begun, and its hello comes later
        first.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first.shake_hands()
        first.ask()
        second = ByHand(port, context, first.tls.session)
        second.socket.close()
        second.socket = probe
        with contextlib.suppress(ssl.SSLWantReadError):
            second.tls.do_handshake()
        probe.sendall(second._outgoing.read()[3:])
        with pytest.raises((ConnectionError, ssl.SSLError)):
            second.shake_hands_and_ask()
        for client in (first, second):
            client.socket.close()

    async def main() -> None:
        async with serving(files.tls) as here:
            await asyncio.to_thread(work, here.port)
            await here.failed(other=1)

    with structlog.testing.capture_logs() as lines:
        run_on(loop_name, main)
    assert "resumed" in lines[0]["detail"]


def s_client(here: Serving, *flags: str, say: bytes) -> Any:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{here.port}", "-servername", "localhost", *flags]
    return asyncio.to_thread(subprocess.run, command, input=say, capture_output=True, timeout=10, check=False)


def test_openssls_client_sees_no_ticket_no_early_data_and_http_1_1(
    loop_name: str, files: Files, authority: Authority, tmp_path: Path
) -> None:
    authority.write(tmp_path)

    async def main() -> None:
        async with serving(files.tls) as here:
            flags = ("-alpn", "h2,http/1.1", "-CAfile", str(tmp_path / "ca.pem"), "-verify_return_error", "-ign_eof")
            told = (await s_client(here, *flags, say=LAST % b"a")).stdout.decode()
            assert "HTTP/1.1 200 OK" in told
            assert "ALPN protocol: http/1.1" in told
            assert "Early data was not sent" in told
            assert "Session Ticket" not in told
            assert "Verify return code: 0 (ok)" in told

    run_on(loop_name, main)


def test_a_client_cannot_negotiate_again(loop_name: str, files: Files) -> None:
    async def main() -> None:
        async with serving(files.tls) as here:
            told = await s_client(here, "-tls1_2", say=b"R\nR\n")
            assert b"no renegotiation" in told.stderr
            assert here.scopes == []

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


def test_connections_and_failed_handshakes_are_freed_by_their_reference_counts(
    files: Files, authority: Authority
) -> None:
    """The service freezes what it has: what only the garbage collector could free would stay for ever."""
    made: list[weakref.ref[BoundedProtocol]] = []
    init = BoundedProtocol.__init__

    def watched(self: BoundedProtocol, *args: Any) -> None:
        init(self, *args)
        made.append(weakref.ref(self))

    async def main() -> None:
        async with serving(files.tls) as here:
            context = client_context(authority)
            contexts = [weakref.ref(files.tls.current().context())]
            gc.collect()
            gc.disable()
            for _ in range(20):
                await by_hand(here, context, ByHand.ask)
                await asyncio.to_thread(fail, here.port, b"GET / HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(5):
                while here.server.counters.connections or here.server.counters.handshakes:
                    await asyncio.sleep(0.01)
            here.scopes.clear()
            await asyncio.sleep(0.1)
            assert len(made) == 20
            left = [each for each in made if each() is not None]
            assert len(left) <= 1, "the sweep holds the one that it looked at last"
            before = len(gc.get_objects())
            for _ in range(50):
                await asyncio.to_thread(fail, here.port, b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.1)
            assert len(gc.get_objects()) - before < 50, "less than an object each"
            assert contexts[0]() is not None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundedProtocol, "__init__", watched)
        try:
            run_on("uvloop", main)
        finally:
            gc.enable()


def fail(port: int, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(said)
        with contextlib.suppress(OSError):
            while client.recv(1000):
                pass


def reset(port: int, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(said)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_ten_thousand_failed_handshakes_leave_nothing(files: Files) -> None:
    def many(port: int, count: int) -> None:
        for number in range(count):
            if number % 2:
                fail(port, b"GET / HTTP/1.1\r\n\r\n")
            else:
                reset(port, b"\x16\x03\x01\x02\x00\x01")

    async def main() -> None:
        async with serving(files.tls) as here:
            await asyncio.to_thread(many, here.port, 1_000)
            before_kib = resident_kib()
            await asyncio.to_thread(many, here.port, 10_000)
            async with asyncio.timeout(5):
                while here.server.counters.handshakes:
                    await asyncio.sleep(0.01)
            assert sum(here.failures.values()) > 5_000
            assert resident_kib() - before_kib < 2_000

    with structlog.testing.capture_logs():
        run_on("uvloop", main)


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024
