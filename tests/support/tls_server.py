"""A server with TLS in the test's own process, on either event loop, that answers with what it was asked."""

import asyncio
import gc
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop
from starlette.types import Receive, Scope, Send

from poolmuster.http.limits import HttpLimits
from poolmuster.http.server import HttpServer, bind
from poolmuster.http.tls import TlsFiles
from poolmuster.model.auth import CertificateCredential
from tests.support.pki import Authority, Issued

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}


def run_on(loop_name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``main`` on an event loop of its own. Whatever the loop would only have logged fails the test."""
    problems: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: problems.append(context))
        runner.run(main())
        runner.run(asyncio.sleep(0.05))
        gc.collect()
    gc.collect()
    assert problems == []


class Files:
    """The files of a server, which a test may replace at any time."""

    def __init__(self, folder: Path, authority: Authority, *, client_ca: bytes | None = None) -> None:
        self.folder = folder
        self.authority = authority
        self.serve(authority.server("localhost", "127.0.0.1"))
        self.client_ca = None
        if client_ca is not None:
            self.client_ca = str(folder / "clients.pem")
            self.trust(client_ca)
        self.tls = TlsFiles(self.cert, self.key, self.client_ca)

    def serve(self, issued: Issued) -> None:
        """Replace the server's certificate and key."""
        paths = issued.write(self.folder, "server")
        self.cert, self.key = paths.cert, paths.key

    def trust(self, pem: bytes) -> None:
        """Replace the clients' authorities."""
        Path(str(self.client_ca)).write_bytes(pem)

    def refresh(self) -> bool:
        """Let new contents settle, and be taken."""
        changed = [self.tls.pair.refresh() for _ in range(2)]
        if self.tls.client_ca is not None:
            changed += [self.tls.client_ca.refresh() for _ in range(2)]
        return any(changed)


class Serving:
    """The server while it runs. ``scopes`` are those of all requests."""

    def __init__(self, server: HttpServer, port: int, scopes: list[Scope]) -> None:
        self.server = server
        self.port = port
        self.scopes = scopes

    @property
    def certificates(self) -> list[CertificateCredential | None]:
        """What each request proved."""
        return [scope["certificate"] for scope in self.scopes]

    @property
    def failures(self) -> dict[str, int]:
        """The failed handshakes by reason, those that there were."""
        return {reason.value: count for reason, count in self.server.counters.handshakes_failed.items() if count}

    async def failed(self, **expected: int) -> None:
        """Wait until just these handshakes have failed."""
        async with asyncio.timeout(5):
            while self.failures != expected or self.server.counters.handshakes:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(tls: TlsFiles | None, **limits: Any) -> AsyncIterator[Serving]:
    """A server whose answers tell what was asked; ``GET /large?N`` is answered by N bytes."""
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        size, more = 0, True
        while more:
            message = await receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        told = {"path": scope["path"], "scheme": scope["scheme"], "body_bytes": size}
        body = json.dumps(told).encode()
        if scope["path"] == "/large":
            body = b"x" * int(scope["query_string"])
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    sockets = bind("127.0.0.1", 0)
    server = HttpServer(sockets, HttpLimits(**limits), tls)
    await server.start(app)
    running = asyncio.create_task(server.run())
    try:
        yield Serving(server, sockets[0].getsockname()[1], scopes)
    finally:
        await server.stop(3)
        running.cancel()
        assert server.counters.handshakes == 0
        assert server.counters.connections == 0


def client_context(
    authority: Authority, certificate: Issued | None = None, folder: Path | None = None, **attributes: Any
) -> ssl.SSLContext:
    """The context of a client that trusts ``authority`` and, maybe, presents a certificate of its own."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    if certificate is not None:
        assert folder is not None, "a certificate is loaded from files"
        paths = certificate.write(folder, "client")
        context.load_cert_chain(paths.cert, paths.key)
    for name, value in attributes.items():
        setattr(context, name, value)
    return context
