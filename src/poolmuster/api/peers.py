"""``/peer/v1/``: what instances tell each other, in lines of JSON. No part of the public interface.

Everything is sent as fast as it is read, and no faster: whoever reads slowly holds its connection and one line.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
from starlette.types import Receive, Scope, Send

from poolmuster.api.query import check_known, parameters, single
from poolmuster.http.auth import Authorizer
from poolmuster.http.auth_log import client_of
from poolmuster.model.auth import Role
from poolmuster.model.errors import FieldError, InvalidInput, Unavailable
from poolmuster.ports.authenticator import AuthContext
from poolmuster.ports.replication_feed import ReplicationFeed
from poolmuster.service.instance import Instance

_NUMBER = re.compile(r"[0-9]{1,18}")
_HEADERS = [
    (b"content-type", b"application/x-ndjson; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]

log = structlog.get_logger(__name__)


ANSWERS_LIMIT = 300
"""Answers under way at once, whatever the limit of streams: three for each of a hundred instances."""


class PeerHandlers:
    """The endpoints. At most ``most`` answers are under way at once, and never more than `ANSWERS_LIMIT`."""

    def __init__(self, instance: Instance, sharing: ReplicationFeed, authorizer: Authorizer, most: int) -> None:
        self._instance = instance
        self._sharing = sharing
        self._gate = authorizer
        self._most = min(most, ANSWERS_LIMIT)
        self._answers = 0

    async def snapshot(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET /peer/v1/list``: all that this instance lists, for one that starts."""
        check_known(parameters(scope), ())
        await self._answer(scope, receive, send, self._sharing.snapshot())

    async def delta(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET /peer/v1/feed``: what was registered here since."""
        await self._answer(scope, receive, send, self._sharing.delta(*_place(scope)))

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET /peer/v1/stream``: the same, and what happens from then on."""
        await self._answer(scope, receive, send, self._sharing.follow(*_place(scope)))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, lines: AsyncGenerator[bytes, None]) -> None:
        if self._instance.stopping_streams:
            raise Unavailable("This instance is stopping.")
        if self._answers >= self._most:
            raise Unavailable(f"This instance answers {self._most} peers at once, as many as it may.")
        self._answers += 1
        listening = asyncio.create_task(_until_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            if scope["method"] != "HEAD":
                await self._send_all(scope, send, lines, listening)
            await send({"type": "http.response.body", "body": b""})
        finally:
            listening.cancel()
            self._answers -= 1

    async def _send_all(
        self, scope: Scope, send: Send, lines: AsyncGenerator[bytes, None], listening: "asyncio.Task[None]"
    ) -> None:
        """Until the lines end, the peer goes, its credentials no longer count, or this instance stops."""
        admission: AuthContext = scope["auth"]
        async with aclosing(lines) as open_lines:
            async for line in open_lines:
                if listening.done():
                    return
                if not self._gate.still_has(admission, Role.PEER):
                    log.warning(
                        "A peer is told no more: its credentials no longer count",
                        principal=admission.principal.name,
                        client=client_of(scope),
                    )
                    return
                await send({"type": "http.response.body", "body": line, "more_body": True})
                if self._instance.stopping_streams:
                    return  # after the line in hand: what was taken at the end is told too


def _place(scope: Scope) -> tuple[str, int]:
    """How far the peer has read, and of which boot."""
    found = parameters(scope)
    check_known(found, ("boot", "after"))
    after = single(found, "after") or "0"
    if _NUMBER.fullmatch(after) is None:
        raise InvalidInput("The place in the feed is not valid.", (FieldError("after", "is a number, 0 or more"),))
    return single(found, "boot") or "", int(after)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
