"""The network towards peers on real sockets of this machine, spoken to by a server that says what it is told."""

import asyncio
import contextlib
import errno
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from poolmuster.model.source import SourceReason
from poolmuster.sources.peers.credentials import PeerCredentials, PeerFiles
from poolmuster.sources.peers.errors import PeerReadError, PeerRefused
from poolmuster.sources.peers.transport import FEED_PATH, LIST_PATH, HttpPeerTransport, PeerAddress
from tests.support.clock import ManualClock
from tests.support.pki import Authority
from tests.support.ports import free_port

GOOD = b"HTTP/1.1 200 OK\r\npoolmuster-instance: b1\r\ncontent-length: 6\r\n\r\nhello\n"


class Server(msgspec.Struct):
    """Answers every request with ``says`` and hangs up. ``heads`` are the requests; None is a failed handshake."""

    says: bytes
    port: int = 0
    heads: list[bytes] = []
    certificates: list[object] = []
    tasks: list["asyncio.Task[None] | None"] = []

    @property
    def place(self) -> PeerAddress:
        return PeerAddress(f"127.0.0.1:{self.port}", "peers.test")

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            self.certificates.append(writer.get_extra_info("peercert"))
            writer.write(self.says)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def serving(says: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(says, heads=[], certificates=[], tasks=[])
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server
        await asyncio.gather(*(task for task in server.tasks if task is not None))


@asynccontextmanager
async def network(**files: object) -> AsyncIterator[HttpPeerTransport]:
    async with HttpPeerTransport(PeerCredentials(PeerFiles(**files), ManualClock())) as network:  # type: ignore[arg-type]
        yield network


async def read(network: HttpPeerTransport, place: PeerAddress, path: str = FEED_PATH) -> tuple[str | None, bytes]:
    async with network.request(place, path, ("boot id", 7)) as answer:
        return answer.boot_id, b"".join([piece async for piece in answer.pieces])


async def test_it_asks_the_address_and_says_how_far_it_has_read() -> None:
    async with serving(GOOD) as server, network() as net:
        assert await read(net, server.place) == ("b1", b"hello\n")
        head = server.heads[0].decode()
        assert head.startswith("GET /peer/v1/feed?boot=boot+id&after=7 HTTP/1.1\r\n")
        assert f"Host: 127.0.0.1:{server.port}\r\n" in head
        assert "Authorization" not in head
        await read(net, server.place, LIST_PATH)
        assert server.heads[1].startswith(b"GET /peer/v1/list HTTP/1.1\r\n")


async def test_who_is_there_is_asked_without_a_body() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\npoolmuster-instance: b1\r\n\r\n") as server, network() as net:
        async with net.request(server.place, FEED_PATH, head=True) as answer:
            assert answer.boot_id == "b1"
        assert server.heads[0].startswith(b"HEAD ")


async def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(GOOD) as server, network() as net:
        assert (await read(net, server.place))[1] == b"hello\n"


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", SourceReason.FORBIDDEN),
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", SourceReason.FORBIDDEN),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", SourceReason.BAD_ANSWER),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", SourceReason.BAD_ANSWER),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", SourceReason.BAD_ANSWER),
        (b"HTTP/1.1 204 No Content\r\n\r\n", SourceReason.BAD_ANSWER),
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", SourceReason.UNREACHABLE),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", SourceReason.BAD_ANSWER),
        (b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 20_000 + b"\r\n\r\n", SourceReason.BAD_ANSWER),
        (b"", SourceReason.UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 60\r\n\r\nhello\n", SourceReason.UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", SourceReason.BAD_ANSWER),
    ],
)
async def test_what_is_no_answer_says_what_is_the_matter(says: bytes, reason: SourceReason) -> None:
    async with serving(says) as server, network() as net:
        with pytest.raises(PeerReadError) as raised:
            await read(net, server.place)
        assert raised.value.reason is reason


async def test_where_nobody_listens_it_is_refused() -> None:
    async with network() as net:
        with pytest.raises(PeerRefused):
            await read(net, PeerAddress(f"127.0.0.1:{free_port()}", "peers.test"))


async def test_what_cannot_be_reached_is_unreachable() -> None:
    async with network() as net:
        with pytest.raises(PeerReadError) as raised:
            await read(net, PeerAddress("255.255.255.255:1", "peers.test"))
        assert raised.value.reason is SourceReason.UNREACHABLE


async def test_why_the_system_cannot_reach_it_is_in_the_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_route(*_: object) -> None:
        raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", no_route)
    async with network() as net:
        with pytest.raises(PeerReadError) as raised:
            await read(net, PeerAddress("192.0.2.1:80", "peers.test"))
        assert raised.value.reason is SourceReason.UNREACHABLE
        assert "No route to host" in raised.value.detail


async def test_the_token_is_shown_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    clock = ManualClock()
    async with serving(GOOD) as server, HttpPeerTransport(PeerCredentials(PeerFiles(token=str(file)), clock)) as net:
        await read(net, server.place)
        file.write_text("two\n")
        for _ in range(2):
            clock.jump(1_000)
            await read(net, server.place)
        await read(net, server.place)
        assert b"Authorization: Bearer one\r\n" in server.heads[0]
        assert b"Authorization: Bearer two\r\n" in server.heads[-1]
        file.write_text("")
        for _ in range(2):
            clock.jump(1_000)
            await read(net, server.place)
        assert b"Authorization: Bearer two\r\n" in server.heads[-1], "what was good last stays in use"


def server_context(folder: Path, authority: Authority, host: str, clients: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.server(host).write(folder, "server")
    context.load_cert_chain(pair.cert, pair.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=clients.pem.decode())
    return context


async def test_a_certificate_has_to_be_for_the_host_of_the_name_whatever_the_address(tmp_path: Path) -> None:
    authority = Authority()
    ca = authority.write(tmp_path)
    async with network(tls=True, authorities=ca) as net:
        async with serving(GOOD, server_context(tmp_path, authority, "peers.test")) as server:
            assert (await read(net, server.place))[1] == b"hello\n"
        async with serving(GOOD, server_context(tmp_path, authority, "127.0.0.1")) as server:
            with pytest.raises(PeerReadError) as raised:
                await read(net, server.place)
            assert raised.value.reason is SourceReason.UNREACHABLE
            assert "certificate" in raised.value.detail


async def test_a_certificate_of_others_is_not_accepted(tmp_path: Path) -> None:
    context = server_context(tmp_path, Authority(), "peers.test")
    async with network(tls=True, authorities=Authority().write(tmp_path)) as net, serving(GOOD, context) as server:
        with pytest.raises(PeerReadError):
            await read(net, server.place)


async def test_who_speaks_no_tls_is_not_spoken_to_in_the_clear(tmp_path: Path) -> None:
    async with network(tls=True, authorities=Authority().write(tmp_path)) as net, serving(GOOD) as server:
        with pytest.raises(PeerReadError):
            await read(net, server.place)


@pytest.mark.parametrize("token", [True, False])
async def test_its_own_certificate_is_shown_where_there_is_no_token(tmp_path: Path, token: bool) -> None:
    authority = Authority()
    own = authority.issue(["peers.test"]).write(tmp_path, "own")
    (tmp_path / "token").write_text("secret\n")
    files = {"token": str(tmp_path / "token")} if token else {}
    pair, ca = (own.cert, own.key), authority.write(tmp_path)
    async with network(tls=True, authorities=ca, pair=pair, **files) as net:
        context = server_context(tmp_path, authority, "peers.test", clients=authority)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        async with serving(GOOD, context) as server:
            await read(net, server.place)
        assert bool(server.certificates[0]) is not token


async def test_a_certificate_that_is_for_servers_only_is_hinted_at(tmp_path: Path) -> None:
    authority = Authority()
    own = authority.server("peers.test").write(tmp_path, "own")
    async with network(tls=True, authorities=authority.write(tmp_path), pair=(own.cert, own.key)) as net:
        context = server_context(tmp_path, authority, "peers.test", clients=authority)
        async with serving(GOOD, context) as server:
            with pytest.raises(PeerReadError) as raised:
                await read(net, server.place)
            assert "for clients" in raised.value.detail
