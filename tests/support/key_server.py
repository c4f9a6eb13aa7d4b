"""A server of signing keys on loopback that can fail in every way a network or a server can."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from enum import StrEnum
from hashlib import sha256

from aiohttp import web

from tests.support.issuer import Issuer

PATH = "/openid/v1/jwks"
DRIP_S = 0.1


class Way(StrEnum):
    """How the server answers."""

    GOOD = "good"
    HANG = "hang"
    DRIP = "drip"
    CUT = "cut"
    REDIRECT = "redirect"
    NOT_FOUND = "not_found"
    UNAUTHORIZED = "unauthorized"
    BROKEN = "broken"
    HUGE = "huge"
    ENDLESS = "endless"
    HTML = "html"
    EMPTY = "empty"
    NO_BODY = "no_body"
    GZIP = "gzip"
    NOT_MODIFIED = "not_modified"


class KeyServer:
    """Publishes the keys of ``issuer``, in the way that ``way`` says."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.way = Way.GOOD
        self.url = ""
        self.asked = 0
        self.not_modified = 0
        self.authorizations: list[str | None] = []
        self.cookies: list[str | None] = []
        self.elsewhere = 0
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Let go whoever hangs."""
        self._ended.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request for the keys."""
        self.asked += 1
        self.authorizations.append(request.headers.get("Authorization"))
        self.cookies.append(request.headers.get("Cookie"))
        match self.way:
            case Way.HANG:
                await self._ended.wait()
            case Way.DRIP | Way.ENDLESS:
                return await self._slowly(request)
            case Way.CUT:
                assert request.transport is not None
                request.transport.abort()
            case Way.REDIRECT:
                raise web.HTTPFound("/elsewhere")
            case Way.NOT_FOUND:
                raise web.HTTPNotFound
            case Way.UNAUTHORIZED:
                raise web.HTTPUnauthorized
            case Way.BROKEN:
                raise web.HTTPBadGateway
            case Way.NOT_MODIFIED:
                raise web.HTTPNotModified
            case _:
                pass
        return self._at_once(request)

    async def answer_elsewhere(self, request: web.Request) -> web.Response:
        """Where a redirect leads."""
        self.elsewhere += 1
        return web.Response(body=self.issuer.jwks())

    def _at_once(self, request: web.Request) -> web.Response:
        content = self.issuer.jwks()
        bodies = {Way.HUGE: content + b" " * 300_000, Way.HTML: b"<html>", Way.EMPTY: b'{"keys": []}', Way.NO_BODY: b""}
        etag = f'"{sha256(content).hexdigest()[:16]}"'
        if self.way is Way.GOOD and request.headers.get("If-None-Match") == etag:
            self.not_modified += 1
            return web.Response(status=304)
        answer = web.Response(body=bodies.get(self.way, content), headers={"ETag": etag, "Set-Cookie": "a=b"})
        answer.headers["Cache-Control"] = "public, max-age=3600"
        if self.way is Way.GZIP:
            answer.enable_compression(web.ContentCoding.gzip)
        return answer

    async def _slowly(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while not self._ended.is_set():
                await answer.write(b" " * (100_000 if self.way is Way.ENDLESS else 1))
                await asyncio.sleep(DRIP_S)
        return answer


@contextlib.asynccontextmanager
async def key_server(issuer: Issuer, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[KeyServer]:
    """A server of the keys of ``issuer``, on a port of its own."""
    server = KeyServer(issuer)
    app = web.Application()
    app.router.add_get(PATH, server.answer)
    app.router.add_get("/elsewhere", server.answer_elsewhere)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls, reuse_address=True)
    await site.start()
    bound = runner.addresses[0][1]
    server.url = f"{'https://localhost' if tls else 'http://127.0.0.1'}:{bound}{PATH}"
    try:
        yield server
    finally:
        server.end()
        await runner.cleanup()
