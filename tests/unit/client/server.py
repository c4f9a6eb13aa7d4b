"""A server over real sockets that answers, streams, cuts and stalls as a test says."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

OVER = web.AppKey("over", asyncio.Event)
"""Set when a test is over, so that handlers that would stay for ever end."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PATIENCE_S = 20.0
"""A guard against hanging, not a measure of anything."""


class Server:
    """Answers each request by the next of ``handlers``, the last one for ever."""

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, web.Request)
        self.requests.append(request)
        self.bodies.append(await request.read())
        handler = self.handlers.pop(0) if len(self.handlers) > 1 else self.handlers[0]
        return await handler(request)

    @property
    def paths(self) -> list[str]:
        return [f"{request.method} {request.raw_path}" for request in self.requests]


def answers(
    status: int = 200, *, headers: dict[str, str] | None = None, body: bytes | None = None, **document: Any
) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        raw = json.dumps(document).encode() if body is None else body
        return web.Response(status=status, body=raw, headers={"Content-Type": "application/json"} | (headers or {}))

    return handler


def problem(status: int, kind: str, **members: Any) -> Handler:
    return answers(status, type=f"urn:poolmuster:{kind}", title="t", detail="as it is", **members)


def streams(*chunks: bytes, end: str = "stay", headers: dict[str, str] | None = None) -> Handler:
    """A watch of these chunks, after which it stays open, ends in good order, or is cut."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson; charset=utf-8"} | (headers or {}))
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if end == "stay":
            await request.app[OVER].wait()
        if end == "cut":
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in events)
