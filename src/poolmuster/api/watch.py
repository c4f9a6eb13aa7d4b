"""``GET /pools/watch``: the list, and from then on every change of it.

A watcher holds its place in the change log, a number, and nothing else. It writes when its connection takes more. Where
the change log has dropped its place meanwhile, it sends one fresh snapshot that replaces everything before. It never
skips changes in silence.

Watchers with the same query and format are a group: a change is filtered and encoded once for all of them, and the
bytes that lead on from one place are the same for each.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from poolmuster.api.encoders import EventEncoder, Piece
from poolmuster.api.list_responses import ListCache
from poolmuster.api.metrics import Metrics
from poolmuster.api.request import ApiLimits, ListQuery, header, list_query, preferred, until_disconnect
from poolmuster.http.auth import Authorizer
from poolmuster.http.auth_log import client_of
from poolmuster.model.auth import Principal, Role
from poolmuster.model.change import PoolChange
from poolmuster.model.errors import Forbidden, LimitReached, NotAcceptable, Unauthenticated, Unavailable
from poolmuster.ports.authenticator import AuthContext
from poolmuster.registry.change_filter import filter_change
from poolmuster.service.broadcaster import Subscriber
from poolmuster.service.instance import Instance

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
PROXY_HEADERS = [(b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no")]

KEEP_ALIVE_MS = 4000
"""Silence after which a keep-alive is sent: five seconds are promised, and the broadcaster checks twice a second."""

AGE_MS = (30 * 60_000, 60 * 60_000)
"""Streams end at a random age between these, so that watchers spread over the instances again after a restart."""

RESETS_LIMIT = 3
RESETS_WITHIN_MS = 60_000

CHUNK_CHANGES = 256
CHUNK_BYTES = 256 * 1024
CHUNK_CACHE_SIZE = 64

log = structlog.get_logger(__name__)


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Bytes that lead from one place to ``number``. They are empty where the filter hides every change between."""

    data: bytes
    number: int


class WatchGroup:
    """The watchers of one query in one format (``sse``, or a JSON object a line).

    ``seen`` is the number up to which the group has read the change log; its watchers wait there for the broadcaster.
    """

    def __init__(self, instance: Instance, lists: ListCache, query: ListQuery, *, sse: bool) -> None:
        self._lists = lists
        self._change_log = instance.catalog.change_log
        self._selector = None if query.selector.selects_all else query.selector
        self._chunks: dict[int, Chunk] = {}
        self._visible: list[PoolChange] = []
        self._visible_from = self._change_log.number
        self._news = False
        self.seen = self._change_log.number
        self.query = query
        self.sse = sse
        self.encoder = EventEncoder(
            boot_id=instance.catalog.boot_id, digest=query.digest, sse=sse, encode_pool=lists.pool_encoder(query)
        )
        self.members: set[Subscriber] = set()

    def subscribers(self) -> set[Subscriber]:
        """Its watchers (`poolmuster.service.broadcaster.SubscriberGroup`)."""
        return self.members

    def poll(self) -> bool:
        """Whether a change since the last call is visible to its watchers."""
        self._chunks.clear()
        self.advance()
        news, self._news = self._news, False
        return news

    def advance(self) -> None:
        """Filter the new changes.

        Afterwards ``_visible`` holds every visible change between ``_visible_from`` and ``seen``. So the group filters
        each change once, and a watcher that was not woken for hidden changes can go on even when the change log has
        dropped them.
        """
        changes = self._change_log.since(self.seen)
        if changes is None:
            self._visible_from, self._visible, self._news = self._change_log.number, [], True
        elif visible := self._filtered(changes):
            self._visible_from = self._visible[-1].number if self._visible else self._visible_from
            self._visible, self._news = visible, True
        self.seen = self._change_log.number

    def _filtered(self, changes: list[PoolChange]) -> list[PoolChange]:
        if (selector := self._selector) is None:
            return changes
        return [seen for change in changes if (seen := filter_change(change, selector)) is not None]

    def resume_number(self, last_event_id: str) -> int | None:
        """The place that ``Last-Event-ID`` names, if the change log still reaches back to it."""
        number = self.encoder.number_of(last_event_id)
        if number is None or not self._change_log.first_resumable <= number <= self._change_log.number:
            return None
        return number

    def next_chunk(self, number: int) -> Chunk | None:
        """The next bytes for a watcher at ``number``; ``None`` where the change log no longer reaches back to it.

        Chunks are cached until the broadcaster's next round: the watchers that it wakes pass the same places, also
        while the change log grows.
        """
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._make_chunk(number)
            if chunk is not None and chunk.number != number:
                if len(self._chunks) >= CHUNK_CACHE_SIZE:
                    self._chunks.clear()
                self._chunks[number] = chunk
        return chunk

    def _make_chunk(self, number: int) -> Chunk | None:
        if number >= self._visible_from:
            return self._encode([change for change in self._visible if change.number > number], max(number, self.seen))
        changes = self._change_log.since(number, CHUNK_CHANGES)
        return None if changes is None else self._encode(self._filtered(changes), changes[-1].number)

    def _encode(self, changes: list[PoolChange], number: int) -> Chunk:
        """As many of ``changes`` as fit into a chunk; where all of them fit, it leads to ``number``."""
        events: list[bytes] = []
        size_bytes = 0
        for index, change in enumerate(changes, 1):
            events.append(self.encoder.change(change))
            size_bytes += len(events[-1])
            if (size_bytes >= CHUNK_BYTES or index == CHUNK_CHANGES) and index < len(changes):
                return Chunk(b"".join(events), change.number)
        return Chunk(b"".join(events), number)

    async def snapshot(self) -> tuple[AsyncIterator[Piece], int]:
        """A ``snapshot`` event in pieces, and the place it leads to. Raises `Unavailable`."""
        response = await self._lists.answer(self.query)
        pieces = response.json.pieces(self._lists.pool_encoder(self.query))
        return self.encoder.snapshot(response.number, pieces), response.number


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

    async def _write(self, data: Piece) -> None:
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
            self.instance.broadcaster.groups.add(group)
        return group

    def _leave(self, group: WatchGroup, watcher: Watcher, name: str) -> None:
        self.streams -= 1
        self._streams_of[name] -= 1
        if not self._streams_of[name]:
            del self._streams_of[name]
        group.members.discard(watcher)
        if not group.members and self._groups.get((group.query, group.sse)) is group:
            del self._groups[group.query, group.sse]
            self.instance.broadcaster.groups.discard(group)
