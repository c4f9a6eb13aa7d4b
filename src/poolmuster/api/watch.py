"""``GET /pools/watch``: the list, and from then on every change of it.

A watcher holds its place in the history and nothing else. It writes when its connection takes more; where the history
has meanwhile moved past its place, it gets one fresh snapshot that replaces all it had. Nothing is skipped in silence.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

import structlog
from starlette.types import Receive, Scope, Send

from poolmuster.api.list_responses import ListCache
from poolmuster.api.metrics import Metrics
from poolmuster.api.negotiation import header, preferred
from poolmuster.api.query import ListQuery, list_query
from poolmuster.api.watch_groups import WatchGroup
from poolmuster.http.auth import Authorizer
from poolmuster.http.auth_log import client_of
from poolmuster.model.auth import Principal, Role
from poolmuster.model.errors import Forbidden, LimitReached, NotAcceptable, Unauthenticated, Unavailable
from poolmuster.ports.authenticator import AuthContext
from poolmuster.service.instance import Instance

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"

KEEP_ALIVE_MS = 4000
"""Silence after which a keep-alive is sent: five seconds are promised, and the sweep runs twice a second."""

AGE_MS = (30 * 60_000, 60 * 60_000)
"""Streams end at a random age between these, so that watchers spread over instances again after a restart."""

RESETS_LIMIT = 3
RESETS_WITHIN_MS = 60_000

log = structlog.get_logger(__name__)

PROXY_HEADERS = [(b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no")]


class Watcher:
    """One stream: its place in the history, and when it last was sent anything."""

    __slots__ = (
        "_admission",
        "_channel",
        "_future",
        "_gate",
        "_gone",
        "_instance",
        "_metrics",
        "_resets",
        "_send",
        "broken_off",
        "ends_ms",
        "number",
        "sent_ms",
        "unauthorized",
    )

    def __init__(
        self,
        instance: Instance,
        channel: WatchGroup,
        metrics: Metrics,
        send: Send,
        *,
        ends_ms: int,
        authorizer: Authorizer,
        admission: AuthContext,
    ) -> None:
        self._instance = instance
        self._gate = authorizer
        self._admission = admission
        self._channel = channel
        self._metrics = metrics
        self._send = send
        self._future: asyncio.Future[None] | None = None
        self._gone = False
        self.unauthorized = False
        self.broken_off = False
        self._resets: deque[int] = deque(maxlen=RESETS_LIMIT)
        self.number = 0
        self.ends_ms = ends_ms
        self.sent_ms = instance.clock.monotonic_ms()

    def wake(self) -> None:
        """Look again (`poolmuster.service.broadcaster.Subscriber`)."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def wake_if_due(self, now_ms: int) -> None:
        """Wake where a keep-alive or the end is due, or its credentials no longer count."""
        if now_ms - self.sent_ms >= KEEP_ALIVE_MS or now_ms >= self.ends_ms or not self._may_read():
            self.wake()

    def _may_read(self) -> bool:
        try:
            # Kept, or it would be judged again at every look, from the first reload on.
            self._admission = self._gate.reauthorize(self._admission, Role.READ)
        except (Forbidden, Unauthenticated):
            return False
        return True

    def disconnected(self) -> None:
        """The client went away."""
        self._gone = True
        self.wake()

    async def run(self, last_event_id: str) -> None:
        """Send until the client goes, the stream is old enough, or the service stops."""
        resumed = self._channel.resume_number(last_event_id) if last_event_id else None
        if resumed is None:
            await self._snapshot()
        else:
            self.number = resumed
            now = await self._instance.catalog.settled_completeness()
            await self._write(self._channel.completeness(resumed, now.sources))
        while not self._gone:
            if not self._may_read():
                self.unauthorized = True
                await self._write(self._channel.closing(self.number, "unauthorized"))
                return
            chunk = self._channel.next_chunk(self.number)
            if chunk is None:
                if not await self._resync():
                    return
                continue
            self.number = chunk.number
            if chunk.data:
                await self._write(chunk.data)
                # A connection that takes everything at once never waits: let others run between chunks.
                await asyncio.sleep(0)
            elif await self._wait_or_close():
                return

    async def _wait_or_close(self) -> bool:
        """At a quiet moment: end, ping, or wait for news."""
        reason = self._reason_to_close()
        if reason is not None:
            self._channel.advance()
        if self.number < self._channel.looked:
            await asyncio.sleep(0)
            return False
        if reason is not None:
            await self._write(self._channel.closing(self.number, reason))
            return True
        if self._instance.clock.monotonic_ms() - self.sent_ms >= KEEP_ALIVE_MS:
            await self._write(self._channel.ping(self.number))
            return False
        self._future = asyncio.get_running_loop().create_future()
        await self._future
        self._future = None
        return False

    def _reason_to_close(self) -> str | None:
        if self._instance.stopping_streams:
            return "shutdown"
        return "max_age" if self._instance.clock.monotonic_ms() >= self.ends_ms else None

    async def _resync(self) -> bool:
        now_ms = self._instance.clock.monotonic_ms()
        self._metrics.watch_resets.inc()
        self._resets.append(now_ms)
        if len(self._resets) == RESETS_LIMIT and now_ms - self._resets[0] <= RESETS_WITHIN_MS:
            await self._write(self._channel.closing(self.number, "too_slow"))
            return False
        await self._snapshot()
        return True

    async def _snapshot(self) -> None:
        # A watcher gets no event for a status that only looked stale because the timer was late.
        await self._instance.catalog.settled_completeness()
        pieces, self.number = await self._channel.snapshot()
        async for piece in pieces:
            if not self._may_read():
                # In the middle of an event there is no saying so: the answer breaks off.
                self.unauthorized = self.broken_off = self._gone = True
                return
            await self._write(piece)

    async def _write(self, data: bytes | memoryview) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.sent_ms = self._instance.clock.monotonic_ms()


class StreamLimits(Protocol):
    """How many streams there may be at once, in all and with one credential."""

    @property
    def streams(self) -> int: ...

    @property
    def streams_per_credential(self) -> int: ...


class Watch:
    """The endpoint: counts streams, keeps the channels, runs a watcher for each request."""

    def __init__(
        self,
        instance: Instance,
        lists: ListCache,
        metrics: Metrics,
        limits: StreamLimits,
        authorizer: Authorizer,
        random_ms: Callable[[int, int], int],
    ) -> None:
        self._instance = instance
        self._lists = lists
        self._metrics = metrics
        self._limits = limits
        self._gate = authorizer
        self._random_ms = random_ms
        self._streams_of: Counter[str] = Counter()
        self._channels: dict[tuple[ListQuery, bool], WatchGroup] = {}
        self.streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = list_query(scope)
        media_type = preferred(scope, (SSE, NDJSON))
        if media_type is None:
            raise NotAcceptable(f"A watch comes as {SSE} or {NDJSON}.")
        admission: AuthContext = scope["auth"]
        self._check_room(admission.principal)
        channel = self._channel(query, sse=media_type == SSE)
        ends_ms = self._instance.clock.monotonic_ms() + self._random_ms(*AGE_MS)
        watcher = Watcher(
            self._instance, channel, self._metrics, send, ends_ms=ends_ms, authorizer=self._gate, admission=admission
        )
        self.streams += 1
        self._streams_of[admission.principal.name] += 1
        channel.members.add(watcher)
        listening = asyncio.create_task(_until_disconnect(receive, watcher))
        try:
            # Read before the answer starts, so that a list that was never read is a 503 and not an empty stream.
            self._lists.require_readable()
            content_type = (b"content-type", f"{media_type}; charset=utf-8".encode())
            headers = [content_type, (b"vary", b"accept"), *PROXY_HEADERS]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            await watcher.run(header(scope, b"last-event-id"))
            if watcher.unauthorized:
                name = admission.principal.name
                log.warning(
                    "A watch was ended: its credentials no longer count", principal=name, client=client_of(scope)
                )
            if not watcher.broken_off:
                await send({"type": "http.response.body", "body": b""})
        finally:
            listening.cancel()
            self.streams -= 1
            self._forget_stream_of(admission.principal)
            self._leave(channel, watcher)

    def _check_room(self, principal: Principal) -> None:
        if self._instance.stopping_streams:
            raise Unavailable("This instance is stopping.")
        most = self._limits.streams
        if self.streams >= most:
            raise Unavailable(f"This instance has {most} streams, as many as it may.", retry_after_s=5)
        if self._gate.allows_anonymous:
            return
        most = self._limits.streams_per_credential if principal.streams is None else principal.streams
        if self._streams_of[principal.name] >= most:
            raise LimitReached(f"This credential has {most} streams at this instance, as many as it may.")

    def _forget_stream_of(self, principal: Principal) -> None:
        self._streams_of[principal.name] -= 1
        if not self._streams_of[principal.name]:
            del self._streams_of[principal.name]

    def _channel(self, query: ListQuery, *, sse: bool) -> WatchGroup:
        channel = self._channels.get((query, sse))
        if channel is None:
            channel = self._channels[query, sse] = WatchGroup(self._instance, self._lists, query, sse=sse)
            self._instance.publisher.groups.add(channel)
        return channel

    def _leave(self, channel: WatchGroup, watcher: Watcher) -> None:
        channel.members.discard(watcher)
        if not channel.members and self._channels.get((channel.query, channel.sse)) is channel:
            del self._channels[channel.query, channel.sse]
            self._instance.publisher.groups.discard(channel)


async def _until_disconnect(receive: Receive, watcher: Watcher) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            watcher.disconnected()
            return
