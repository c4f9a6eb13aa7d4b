"""A service over TLS that keeps what it was shown: certificates by connection, tokens by request."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from tests.support.pki import Issued, PairPaths

LISTING: dict[str, Any] = {"pools": [], "complete": True, "revision": "b.1", "sources": []}


class Shown(msgspec.Struct, frozen=True):
    """What came with one request: ``certificate``, as DER, with its connection, which ``port`` tells from others."""

    authorization: str | None
    certificate: bytes | None
    port: int


class TlsService:
    """Answers with ``document``, an empty list at first, and ``/pools/watch`` with a watch that stays open."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.url = ""
        self.shown: list[Shown] = []
        self.open_ports: set[int] = set()
        self.status = 200
        self.document: dict[str, Any] = LISTING
        self.over = asyncio.Event()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        port = transport.get_extra_info("peername")[1]
        self.shown.append(Shown(request.headers.get("Authorization"), certificate, port))
        if self.status != 200:
            return web.json_response({"detail": "It says no."}, status=self.status, headers={"Location": "http://o/"})
        if request.path != "/pools/watch":
            return web.json_response(self.document)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        await response.write(msgspec.json.encode({"type": "snapshot", "id": "b.1.f", **LISTING}) + b"\n")
        await self.over.wait()
        return response

    @property
    def connections(self) -> int:
        """How many there are in all so far."""
        return len({shown.port for shown in self.shown})

    async def take(self, pair: PairPaths) -> None:
        """Show another certificate from the next connection on."""
        assert self.context is not None
        self.context.load_cert_chain(pair.cert, pair.key)


def server_context(folder: Path, issued: Issued, *, clients: bytes | None = None) -> ssl.SSLContext:
    """A server's context; with ``clients`` it wants certificates of these authorities."""
    paths = issued.write(folder, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paths.cert, paths.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.decode())
    return context


@asynccontextmanager
async def serving(context: ssl.SSLContext | None) -> AsyncIterator[TlsService]:
    """A service for as long as the block."""
    service = TlsService(context)
    runner = web.ServerRunner(web.Server(service.handle), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    service.url = f"{'http' if context is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield service
    finally:
        service.over.set()
        await runner.cleanup()
