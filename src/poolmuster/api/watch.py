"""``GET /pools/watch``: the list, and from then on every change of it.

A watcher holds its place in the change log and nothing else. It writes when its connection takes more. Where the change
log has dropped its place meanwhile, it sends one fresh snapshot that replaces everything before. It never skips changes
in silence.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable

import structlog
from starlette.types import Receive, Scope, Send

from poolmuster.api.list_responses import ListCache
from poolmuster.api.metrics import Metrics
from poolmuster.api.request import ApiLimits, ListQuery, header, list_query, preferred, until_disconnect
from poolmuster.api.watch_groups import WatchGroup
from poolmuster.http.auth import Authorizer
from poolmuster.http.auth_log import client_of
from poolmuster.model.auth import Principal, Role
from poolmuster.model.errors import Forbidden, LimitReached, NotAcceptable, Unauthenticated, Unavailable
from poolmuster.ports.authenticator import AuthContext
from poolmuster.service.instance import Instance

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
PROXY_HEADERS = [(b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no")]

KEEP_ALIVE_MS = 4000
"""Silence after which a keep-alive is sent: five seconds are promised, and the publisher checks twice a second."""

AGE_MS = (30 * 60_000, 60 * 60_000)
"""Streams end at a random age between these, so that watchers spread over the instances again after a restart."""

RESETS_LIMIT = 3
RESETS_WITHIN_MS = 60_000

log = structlog.get_logger(__name__)


class Watcher:
    """One stream: its place in the change log, and when it last sent something.

    ``aborted`` means that a snapshot was cut off in the middle, so that the response must not end in order.
    """

    def __init__(self, watch: "Watch", group: WatchGroup, send: Send, auth: AuthContext, age_ms: int) -> None:
        self._watch = watch
        self._group = group
        self._send = send
        self._auth = auth
        self._sent_ms = watch.now_ms()
        self._ends_ms = self._sent_ms + age_ms
        self._future: asyncio.Future[None] | None = None
        self._gone = False
        self._resets: deque[int] = deque(maxlen=RESETS_LIMIT)
        self._number = 0
        self.unauthorized = False
        self.aborted = False

    def wake(self) -> None:
        """Check again what there is to do (`poolmuster.service.broadcaster.Subscriber`)."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def wake_if_due(self, now_ms: int) -> None:
        """Wake where a keep-alive or the end is due, or the credentials are no longer valid."""
        if now_ms - self._sent_ms >= KEEP_ALIVE_MS or now_ms >= self._ends_ms or not self._may_read():
            self.wake()

    def _may_read(self) -> bool:
        try:
            # Kept: after the first reload, the old context would be authenticated again at each check.
            self._auth = self._watch.authorizer.reauthorize(self._auth, Role.READ)
        except (Forbidden, Unauthenticated):
            return False
        return True

    def disconnected(self) -> None:
        """The client has disconnected."""
        self._gone = True
        self.wake()

    async def run(self, last_event_id: str) -> None:
        """Send until the client disconnects, the stream is old enough, or the service stops."""
        resumed = self._group.resume_number(last_event_id) if last_event_id else None
        if resumed is None:
            await self._snapshot()
        else:
            self._number = resumed
            now = await self._watch.instance.catalog.settled_completeness()
            await self._write(self._group.encoder.completeness(resumed, now))
        while not self._gone:
            if not self._may_read():
                self.unauthorized = True
                await self._close("unauthorized")
                return
            chunk = self._group.next_chunk(self._number)
            if chunk is None:
                if not await self._resync():
                    return
                continue
            self._number = chunk.number
            if chunk.data:
                await self._write(chunk.data)
                # A connection that takes everything at once never waits: let others run between chunks.
                await asyncio.sleep(0)
            elif await self._wait_or_close():
                return

    async def _wait_or_close(self) -> bool:
        """With all changes sent: close, ping, or wait for news. Returns whether the stream is closed."""
        reason = self._reason_to_close()
        if reason is not None:
            self._group.advance()
        if self._number < self._group.seen:
            await asyncio.sleep(0)
        elif reason is not None:
            await self._close(reason)
            return True
        elif self._watch.now_ms() - self._sent_ms >= KEEP_ALIVE_MS:
            await self._write(self._group.encoder.ping(self._number))
        else:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
            self._future = None
        return False

    def _reason_to_close(self) -> str | None:
        if self._watch.instance.stopping_streams:
            return "shutdown"
        return "max_age" if self._watch.now_ms() >= self._ends_ms else None

    async def _resync(self) -> bool:
        """Send a fresh snapshot; close instead, and return false, where the watcher was too slow too often."""
        now_ms = self._watch.now_ms()
        self._watch.metrics.watch_resets.inc()
        self._resets.append(now_ms)
        if len(self._resets) == RESETS_LIMIT and now_ms - self._resets[0] <= RESETS_WITHIN_MS:
            await self._close("too_slow")
            return False
        await self._snapshot()
        return True

    async def _snapshot(self) -> None:
        # A watcher gets no event for a status that only looked stale because the timer was late.
        await self._watch.instance.catalog.settled_completeness()
        pieces, self._number = await self._group.snapshot()
        async for piece in pieces:
            if not self._may_read():
                # No other event can come in the middle of this one.
                self.unauthorized = self.aborted = self._gone = True
                return
            await self._write(piece)

    async def _close(self, reason: str) -> None:
        await self._write(self._group.encoder.closing(self._number, reason))

    async def _write(self, data: bytes | memoryview) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._sent_ms = self._watch.now_ms()


class Watch:
    """The endpoint: limits the streams, keeps the groups, runs a watcher for each request."""

    def __init__(
        self,
        instance: Instance,
        lists: ListCache,
        metrics: Metrics,
        limits: ApiLimits,
        authorizer: Authorizer,
        random_ms: Callable[[int, int], int],
    ) -> None:
        self.instance = instance
        self.metrics = metrics
        self.authorizer = authorizer
        self.now_ms = instance.clock.monotonic_ms
        self._lists = lists
        self._limits = limits
        self._random_ms = random_ms
        self._streams_of: Counter[str] = Counter()
        self._groups: dict[tuple[ListQuery, bool], WatchGroup] = {}
        self.streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = list_query(scope)
        media_type = preferred(scope, (SSE, NDJSON))
        if media_type is None:
            raise NotAcceptable(f"A watch comes as {SSE} or {NDJSON}.")
        auth: AuthContext = scope["auth"]
        self._check_limits(auth.principal)
        group = self._group(query, sse=media_type == SSE)
        watcher = Watcher(self, group, send, auth, self._random_ms(*AGE_MS))
        self.streams += 1
        self._streams_of[auth.principal.name] += 1
        group.members.add(watcher)
        listening = asyncio.create_task(until_disconnect(receive))
        listening.add_done_callback(lambda _: watcher.disconnected())
        try:
            # Checked before the response starts, so that a list that was never read is a 503.
            self._lists.require_readable()
            content_type = (b"content-type", f"{media_type}; charset=utf-8".encode())
            headers = [content_type, (b"vary", b"accept"), *PROXY_HEADERS]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["method"] != "HEAD":
                await watcher.run(header(scope, b"last-event-id"))
            if watcher.unauthorized:
                name = auth.principal.name
                log.warning(
                    "A watch was ended: its credentials no longer count", principal=name, client=client_of(scope)
                )
            if not watcher.aborted:
                await send({"type": "http.response.body", "body": b""})
        finally:
            listening.cancel()
            self._leave(group, watcher, auth.principal.name)

    def _check_limits(self, principal: Principal) -> None:
        if self.instance.stopping_streams:
            raise Unavailable("This instance is stopping.")
        most = self._limits.streams
        if self.streams >= most:
            raise Unavailable(f"This instance has {most} streams, as many as it may.", retry_after_s=5)
        if self.authorizer.allows_anonymous:
            return
        most = self._limits.streams_per_credential if principal.streams is None else principal.streams
        if self._streams_of[principal.name] >= most:
            raise LimitReached(f"This credential has {most} streams at this instance, as many as it may.")

    def _group(self, query: ListQuery, *, sse: bool) -> WatchGroup:
        group = self._groups.get((query, sse))
        if group is None:
            group = self._groups[query, sse] = WatchGroup(self.instance, self._lists, query, sse=sse)
            self.instance.publisher.groups.add(group)
        return group

    def _leave(self, group: WatchGroup, watcher: Watcher, name: str) -> None:
        self.streams -= 1
        self._streams_of[name] -= 1
        if not self._streams_of[name]:
            del self._streams_of[name]
        group.members.discard(watcher)
        if not group.members and self._groups.get((group.query, group.sse)) is group:
            del self._groups[group.query, group.sse]
            self.instance.publisher.groups.discard(group)
