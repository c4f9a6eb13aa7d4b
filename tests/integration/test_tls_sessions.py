"""No session is resumed, nothing is negotiated again, and a handshake leaves nothing behind."""

import asyncio
import contextlib
import gc
import resource
import socket
import ssl
import struct
import subprocess
import weakref
from pathlib import Path
from typing import Any

import pytest
import structlog

from poolmuster.http.protocol import BoundedProtocol
from tests.support.parts import OPENSSL
from tests.support.pki import Authority
from tests.support.tls_client import LAST, ByHand, by_hand
from tests.support.tls_server import Files, Serving, client_context, run_on, serving

pytestmark = pytest.mark.integration


def test_no_session_is_resumed(loop_name: str, files: Files, authority: Authority, tmp_path: Path) -> None:
    """While its connection is open, after it closed in good order, with and without a certificate."""
    anybody = client_context(authority)
    somebody = client_context(authority, authority.client("a"), tmp_path)

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


def test_who_could_resume_is_not_spoken_with_where_certificates_count(
    loop_name: str, files: Files, authority: Authority, tmp_path: Path
) -> None:
    """Python gives no way to turn off what TLS 1.2 resumes from."""
    old = client_context(authority, maximum_version=ssl.TLSVersion.TLSv1_2)

    async def main() -> None:
        async with serving(files.tls) as here:
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await by_hand(here, old, ByHand.ask)
            await here.failed(no_shared_version=1)
        async with serving(Files(tmp_path / "other", authority).tls) as here:
            assert b"200 OK" in await by_hand(here, old, ByHand.ask)

    (tmp_path / "other").mkdir()
    run_on(loop_name, main)


def s_client(here: Serving, *flags: str, say: bytes) -> Any:
    where = ("-connect", f"127.0.0.1:{here.port}", "-servername", "localhost")
    command = [str(OPENSSL.require()), "s_client", *where, *flags]
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


def test_a_client_cannot_negotiate_again(loop_name: str, authority: Authority, tmp_path: Path) -> None:
    files = Files(tmp_path, authority)

    async def main() -> None:
        async with serving(files.tls) as here:
            told = await s_client(here, "-tls1_2", say=b"R\nR\n")
            assert b"no renegotiation" in told.stderr
            assert here.scopes == []

    run_on(loop_name, main)


FAILING = (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"a" * 50)
"""What is refused before TLS begins, and what OpenSSL refuses."""


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
            contexts = [weakref.ref(files.tls.current().context)]
            gc.collect()
            gc.disable()
            for _ in range(20):
                await by_hand(here, context, ByHand.ask)
                for said in FAILING:
                    await asyncio.to_thread(fail, here.port, said)
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
                for said in FAILING:
                    await asyncio.to_thread(fail, here.port, said)
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
