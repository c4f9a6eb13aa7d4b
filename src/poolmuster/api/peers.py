"""``/peer/v1/``: what peers read from this instance, as JSON lines. No part of the public interface.

A slow reader holds its connection and one line: each line is made when the one before was sent.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
from starlette.types import Receive, Scope, Send

from poolmuster.api.request import parameters, single, until_disconnect
from poolmuster.api.watch import NDJSON
from poolmuster.http.application import Endpoint
from poolmuster.http.auth import Authorizer
from poolmuster.http.auth_log import client_of
from poolmuster.model.auth import Role
from poolmuster.model.errors import FieldError, InvalidInput, Unavailable
from poolmuster.ports.authenticator import AuthContext
from poolmuster.ports.replication_feed import ReplicationFeed
from poolmuster.service.instance import Instance

RESPONSES_LIMIT = 300
"""Responses in progress at once, whatever the limit of streams: three for each of a hundred instances."""

_NUMBER = re.compile(r"[0-9]{1,18}")
_HEADERS = [
    (b"content-type", f"{NDJSON}; charset=utf-8".encode()),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]

log = structlog.get_logger(__name__)


def peer_endpoints(instance: Instance, authorizer: Authorizer, streams: int) -> list[Endpoint]:
    """The endpoints of the instance's replication feed, where it has one, with at most ``streams`` responses."""
    if instance.replication_feed is None:
        return []
    peers = PeerHandlers(instance, instance.replication_feed, authorizer, streams)
    paths = {"list": peers.snapshot, "feed": peers.delta, "stream": peers.stream}
    return [Endpoint(f"/peer/v1/{name}", GET=(Role.PEER, handler)) for name, handler in paths.items()]


class PeerHandlers:
    """The endpoints of ``feed``. At most ``most`` responses are in progress at once, and `RESPONSES_LIMIT`."""

    def __init__(self, instance: Instance, feed: ReplicationFeed, authorizer: Authorizer, most: int) -> None:
        self._instance = instance
        self._feed = feed
        self._authorizer = authorizer
        self._most = min(most, RESPONSES_LIMIT)
        self._responses = 0

    async def snapshot(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET /peer/v1/list``: everything that this instance lists, for a peer that starts."""
        parameters(scope)
        await self._respond(scope, receive, send, self._feed.snapshot())

    async def delta(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET /peer/v1/feed``: what was registered here since."""
        await self._respond(scope, receive, send, self._feed.delta(*_place(scope)))

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET /peer/v1/stream``: the same, and what happens from then on."""
        await self._respond(scope, receive, send, self._feed.follow(*_place(scope)))

    async def _respond(self, scope: Scope, receive: Receive, send: Send, lines: AsyncGenerator[bytes, None]) -> None:
        if self._instance.stopping_streams:
            raise Unavailable("This instance is stopping.")
        if self._responses >= self._most:
            raise Unavailable(f"This instance answers {self._most} peers at once, as many as it may.")
        self._responses += 1
        listening = asyncio.create_task(until_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            if scope["method"] != "HEAD":
                await self._send_all(scope, send, lines, listening)
            await send({"type": "http.response.body", "body": b""})
        finally:
            listening.cancel()
            self._responses -= 1

    async def _send_all(
        self, scope: Scope, send: Send, lines: AsyncGenerator[bytes, None], listening: "asyncio.Task[None]"
    ) -> None:
        """Until the lines end, the peer disconnects, its credentials are revoked, or this instance stops."""
        auth: AuthContext = scope["auth"]
        async with aclosing(lines) as open_lines:
            async for line in open_lines:
                if listening.done():
                    return
                if not self._authorizer.still_has(auth, Role.PEER):
                    log.warning(
                        "A peer is told no more: its credentials no longer count",
                        principal=auth.principal.name,
                        client=client_of(scope),
                    )
                    return
                await send({"type": "http.response.body", "body": line, "more_body": True})
                if self._instance.stopping_streams:
                    return  # after this line, which may hold the last registrations


def _place(scope: Scope) -> tuple[str, int]:
    """The boot and the number up to which the peer has read."""
    found = parameters(scope, "boot", "after")
    after = single(found, "after") or "0"
    if _NUMBER.fullmatch(after) is None:
        raise InvalidInput("The place in the feed is not valid.", (FieldError("after", "is a number, 0 or more"),))
    return single(found, "boot") or "", int(after)
