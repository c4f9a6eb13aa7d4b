"""The client over TLS, on real sockets: what it shows, to whom, and what it says of a service that is not right."""

import asyncio
import gc
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from poolmuster.client import AsyncClient, ClientSettings, Forbidden, InvalidResponse, Unauthenticated, Unreachable
from poolmuster.client.credentials import REFRESH_INTERVAL_MS
from poolmuster.model.errors import PoolmusterError
from tests.support.clock import ManualClock
from tests.support.pki import DAY, Authority, Issued, from_now, replace_file
from tests.support.tls_service import Shown, TlsService, server_context, serving

pytestmark = pytest.mark.integration

TOKEN = "sesame-that-shows-nowhere"
PATIENCE_S = 20.0
OF_THE_CLIENT = ("poolmuster.", "aiohttp.client", "aiohttp.connector")


class Parts:
    """Authorities, and the files of one client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers, self.clients = Authority("servers"), Authority("clients")
        self.ca = self.servers.write(folder)
        self.pair = self.clients.client("a").write(folder, "client")
        self.token = replace_file(folder / "token", TOKEN.encode())
        self.clock = ManualClock()

    def server(self, issued: Issued | None = None, *, clients: bytes | None = None) -> ssl.SSLContext:
        return server_context(self.folder, issued or self.servers.server("127.0.0.1"), clients=clients)

    def settings(self, url: str, *, token: bool = True, pair: bool = True) -> ClientSettings:
        return ClientSettings(
            urls=(url,),
            token_file=self.token if token else None,
            ca_cert=self.ca,
            client_cert=self.pair.cert if pair else None,
            client_key=self.pair.key if pair else None,
            silence_limit_ms=10**9,
        )

    def client(self, url: str, *, token: bool = True, pair: bool = True) -> AsyncClient:
        return AsyncClient(self.settings(url, token=token, pair=pair), clock=self.clock)


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


async def list_settled(client: AsyncClient, parts: Parts, after_ms: int = REFRESH_INTERVAL_MS) -> None:
    """One call; the clock moves on before it, and while it lasts."""
    parts.clock.jump(after_ms)
    calling = asyncio.create_task(client.list())
    while not calling.done():
        await parts.clock.advance(1)
        await asyncio.sleep(0.001)  # the call is over a real socket
    await calling


async def failure(parts: Parts, url: str, *, pair: bool = False) -> PoolmusterError:
    async with parts.client(url, pair=pair) as client:
        with pytest.raises(PoolmusterError) as caught:
            await client.list()
    return caught.value


async def test_every_call_shows_the_token_and_the_certificate(parts: Parts) -> None:
    async with serving(parts.server(clients=parts.clients.pem)) as service, parts.client(service.url) as client:
        await client.list()
        await client.deregister("c/n/a")
        async with client.follow() as follower:
            updates = follower.updates()
            async with asyncio.timeout(PATIENCE_S):
                await anext(updates)
    certificate = ssl.PEM_cert_to_DER_cert(Path(parts.pair.cert).read_text())  # noqa: ASYNC240 - a test's file
    assert len(service.shown) == 3
    assert {(shown.authorization, shown.certificate) for shown in service.shown} == {(f"Bearer {TOKEN}", certificate)}


async def test_what_was_rotated_is_used_from_the_next_call_on(parts: Parts) -> None:
    async with serving(parts.server(clients=parts.clients.pem)) as service, parts.client(service.url) as client:
        await client.list()
        await client.list()
        assert service.connections == 1
        replace_file(Path(parts.token), b"second")
        await list_settled(client, parts)
        assert (service.shown[-1].authorization, service.connections) == ("Bearer second", 1)
        fresh = parts.clients.client("b")
        fresh.write(parts.folder, "client")
        await list_settled(client, parts)
        assert (service.shown[-1].certificate, service.connections) == (fresh.der, 2)
        other = Authority("others")
        parts.ca = other.write(parts.folder)
        await service.take(other.server("127.0.0.1").write(parts.folder, "server"))
        await list_settled(client, parts)
        assert service.connections == 3


async def test_an_authority_that_is_trusted_no_more_counts_for_kept_connections_too(parts: Parts) -> None:
    async with serving(parts.server()) as service, parts.client(service.url) as client:
        await client.list()
        Authority("others").write(parts.folder)
        with pytest.raises(Unreachable, match="an authority that is not trusted here"):
            await list_settled(client, parts)


async def test_rotations_under_load_cost_no_call_and_no_watch(parts: Parts) -> None:
    """Every file is replaced again and again, as deployments do it: what is new is accepted before it is shown."""
    async with serving(parts.server(clients=parts.clients.pem)) as service, parts.client(service.url) as client:
        over = asyncio.Event()

        async def call_on() -> None:
            while not over.is_set():
                await client.list()

        async with client.follow() as follower, asyncio.timeout(PATIENCE_S):
            callers = [asyncio.create_task(call_on()) for _ in range(8)]
            for number in range(3):
                await _rotate(parts, service, number)
                await _go_on(parts)
                assert not any(caller.done() for caller in callers)
            over.set()
            await asyncio.gather(*callers)
            assert follower.last_error is None
            assert follower.connected_url is not None
        assert service.shown[-1].authorization == "Bearer token-2"
        assert len({shown.certificate for shown in service.shown}) == 4
        assert len([shown for shown in service.shown if shown.authorization is None]) == 0


async def _rotate(parts: Parts, service: TlsService, number: int) -> None:
    replace_file(Path(parts.token), f"token-{number}".encode())
    fresh = parts.clients.client("a")
    replace_file(Path(parts.pair.key), fresh.key_pem)
    await _go_on(parts)
    replace_file(Path(parts.pair.cert), fresh.cert_pem)
    successor = Authority("servers")
    replace_file(Path(parts.ca), parts.servers.pem + successor.pem)
    await _go_on(parts)
    await service.take(successor.server("127.0.0.1").write(parts.folder, "server"))
    parts.servers = successor


async def _go_on(parts: Parts) -> None:
    """Two looks at the files, with calls in between."""
    for _ in range(8):
        await parts.clock.advance(REFRESH_INTERVAL_MS // 4)
        await asyncio.sleep(0.005)  # the calls are over real sockets


async def test_after_a_401_the_token_is_looked_at_before_the_next_call(parts: Parts) -> None:
    async with serving(None) as service, parts.client(service.url) as client:
        service.status = 401
        with pytest.raises(Unauthenticated, match=r"It says no\.") as caught:
            await client.list()
        assert caught.value.presented
        replace_file(Path(parts.token), b"second")
        service.status = 200
        await list_settled(client, parts, after_ms=0)
    assert [shown.authorization for shown in service.shown] == [f"Bearer {TOKEN}", "Bearer second"]


@pytest.mark.parametrize(("token", "pair", "tls"), [(False, False, True), (False, True, False)])
async def test_a_401_tells_where_nothing_was_shown(parts: Parts, token: bool, pair: bool, tls: bool) -> None:
    async with serving(parts.server() if tls else None) as service:
        service.status = 401
        async with parts.client(service.url, token=token, pair=pair) as client:
            with pytest.raises(Unauthenticated) as caught:
                await client.list()
    assert not caught.value.presented
    assert service.shown == [Shown(None, None, service.shown[0].port)]


async def test_a_403_and_a_redirect_are_errors_and_lead_nowhere_else(parts: Parts) -> None:
    async with serving(None) as service, serving(None) as elsewhere, parts.client(service.url) as client:
        service.status = 403
        with pytest.raises(Forbidden, match=r"It says no\."):
            await client.list()
        service.status = 307
        with pytest.raises(InvalidResponse, match="redirects are not followed"):
            await client.list()
    assert elsewhere.shown == []


async def test_a_service_is_told_apart_from_what_is_not_right_with_it(parts: Parts) -> None:
    yesterday = {"not_before": from_now(-2 * DAY), "not_after": from_now(-DAY)}
    tomorrow = {"not_before": from_now(DAY), "not_after": from_now(2 * DAY)}
    stranger = Authority("strangers")
    for issued, reason in (
        (stranger.server("127.0.0.1"), "its certificate is by an authority that is not trusted here"),
        (parts.servers.server("127.0.0.1", **yesterday), "certificate has expired"),
        (parts.servers.server("127.0.0.1", **tomorrow), "certificate is not yet valid"),
        (parts.servers.server("127.0.0.2"), "its certificate is for another name"),
        (parts.servers.client("127.0.0.1"), "its certificate is not accepted"),
    ):
        async with serving(parts.server(issued)) as service:
            error = await failure(parts, service.url)
            assert isinstance(error, Unreachable)
            assert reason in error.detail
            assert service.shown == []
    behind_another = parts.server(parts.servers.intermediate().server("127.0.0.1"))
    async with serving(behind_another) as service, parts.client(service.url) as client:
        await client.list()


async def test_http_where_tls_is_spoken_and_the_reverse_are_told(parts: Parts) -> None:
    async with serving(parts.server()) as service:
        error = await failure(parts, service.url.replace("https:", "http:"))
    assert "is it https?" in error.detail
    async with serving(None) as service:
        error = await failure(parts, service.url.replace("http:", "https:"))
    assert "does not speak TLS there" in error.detail


@contextmanager
def alerting(context: ssl.SSLContext, answer: bytes = b"") -> Iterator[str]:
    """A server that says in alerts what it does not like, as OpenSSL's do and asyncio's does not."""
    listener = socket.create_server(("127.0.0.1", 0))
    ending = threading.Event()

    def serve() -> None:
        listener.settimeout(0.05)
        while not ending.is_set():
            try:
                plain, _ = listener.accept()
            except TimeoutError:
                continue
            plain.settimeout(PATIENCE_S)
            try:
                with context.wrap_socket(plain, server_side=True) as wrapped:
                    wrapped.recv(1)
            except OSError:
                plain.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ending.set()
        thread.join()
        listener.close()


async def test_what_the_service_wants_of_the_clients_certificate_is_told(parts: Parts) -> None:
    context = parts.server(clients=parts.clients.pem)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # from 1.3 on an alert may be overtaken by the end
    with alerting(context) as address:
        error = await failure(parts, f"https://{address}")
        assert "it may want a client certificate" in error.detail
        for issued, reason in (
            (Authority("strangers").client("a"), "does not know the authority of the client certificate"),
            (
                parts.clients.client("a", not_before=from_now(-2 * DAY), not_after=from_now(-DAY)),
                "the client certificate has expired",
            ),
        ):
            issued.write(parts.folder, "client")
            assert reason in (await failure(parts, f"https://{address}", pair=True)).detail


async def test_versions_before_1_2_are_refused(parts: Parts) -> None:
    context = parts.server()
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with alerting(context) as address:
        assert "no version of TLS from 1.2 on" in (await failure(parts, f"https://{address}")).detail


@contextmanager
def prose(answer: bytes) -> Iterator[str]:
    """A server that gives one answer to whatever comes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
    ],
)
async def test_what_other_servers_of_tls_say_to_http_is_understood(parts: Parts, answer: bytes) -> None:
    with prose(answer) as address:
        error = await failure(parts, f"http://{address}")
    assert "it speaks TLS there: its URL begins with https" in error.detail
    shown = ""
    cause: BaseException | None = error
    while cause is not None:
        shown += f"{cause!r} {cause} {vars(cause)!r}"
        cause = cause.__cause__ or cause.__context__
    assert TOKEN not in shown


async def test_a_proxy_is_asked_without_the_token(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    async with server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        error = await failure(parts, "https://service.example")
    assert heads
    assert all(head.startswith(b"CONNECT service.example:443 ") for head in heads)
    assert TOKEN.encode() not in b"".join(heads)
    assert isinstance(error.__cause__, aiohttp.ClientHttpProxyError)


async def test_nothing_planted_is_logged_or_held_where_it_shows(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    async with serving(parts.server(clients=parts.clients.pem)) as service, parts.client(service.url) as client:
        await client.list()
        service.status = 401
        with pytest.raises(Unauthenticated):
            await client.list()
        replace_file(Path(parts.token), b"sesame broken")
        await asyncio.gather(list_settled(client, parts), return_exceptions=True)
        own = [each for each in gc.get_objects() if str(type(each).__module__).startswith(OF_THE_CLIENT)]
        shown = "".join(map(repr, own)) + caplog.text
    assert "credentials not reloaded" in caplog.text
    assert "sesame" not in shown
    assert "PRIVATE KEY" not in shown


async def test_a_token_in_the_clear_is_warned_of_once(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    urls = ("http://127.0.0.1:1", "http://localhost:1", "https://a.example", "http://b.example/x", "http://c.example")
    settings = ClientSettings(urls=urls, token_file=parts.token)
    async with AsyncClient(settings):
        pass
    (record,) = caplog.records
    assert record.getMessage().endswith(": http://b.example/x http://c.example")
    assert TOKEN not in record.getMessage()
