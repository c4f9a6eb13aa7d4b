"""Follows the list through cuts, silence, restarts, and instances that come and go.

A follower keeps the last list through any outage, with its age and whether it is complete. It never gives up: the code
that started it ends it.
"""

import random
from collections.abc import Mapping
from contextlib import aclosing

from poolmuster.client.errors import NotReady, Unreachable
from poolmuster.client.events import Closing, Event, MalformedEvent, WatchSnapshot
from poolmuster.client.mirror import Mirror
from poolmuster.client.pool_index import Usable
from poolmuster.client.responses import Document, SourceReport
from poolmuster.client.settings import ClientSettings
from poolmuster.client.subscription import Subscription, Subscriptions, Update, UpdateKind
from poolmuster.client.watch import CatchUp, OpenWatch, Watchdog, WatchTimeout, read_events
from poolmuster.model.errors import LimitReached, PoolmusterError
from poolmuster.model.key import PoolKey
from poolmuster.ports.clock import Clock

CLOSING_JITTER_MS = 500
"""Watchers that one instance closes together come back spread over this time."""


class Endpoints:
    """The URLs of one service, each with an exponential backoff of its own.

    After a failure the next one is tried at once, the failed one only after a while.
    """

    def __init__(self, settings: ClientSettings, rng: random.Random) -> None:
        self._urls = settings.urls
        self._first_ms = settings.backoff_first_ms
        self._limit_ms = settings.backoff_limit_ms
        self._rng = rng
        self._at = 0
        self._failures = [0] * len(self._urls)
        self._not_before_ms = [0.0] * len(self._urls)

    @property
    def url(self) -> str:
        """The one in use, or to be tried first."""
        return self._urls[self._at]

    def choose(self, now_ms: int) -> float:
        """Choose `url`: the first in the ring that may be tried. Returns how long to wait before, in ms."""
        ring = [(self._at + step) % len(self._urls) for step in range(len(self._urls))]
        self._at = min(ring, key=lambda at: max(0.0, self._not_before_ms[at] - now_ms))
        return max(0.0, self._not_before_ms[self._at] - now_ms)

    def worked(self) -> None:
        """`url` proved good: forget its failures."""
        self._failures[self._at] = 0
        self._not_before_ms[self._at] = 0.0

    def failed(self, now_ms: int, retry_after_ms: int = 0) -> None:
        """`url` failed; go on to the next. ``retry_after_ms`` is how long the instance asked for."""
        backoff_ms = min(self._limit_ms, self._first_ms * 2 ** min(self._failures[self._at], 32))
        self._failures[self._at] += 1
        # Never below what was asked for, and spread out: the clients of a restarted service must not all come at once.
        wait_ms = max(backoff_ms * self._rng.uniform(0.5, 1.0), retry_after_ms * self._rng.uniform(1.0, 1.25))
        self._not_before_ms[self._at] = now_ms + wait_ms
        self.advance()

    def advance(self) -> None:
        """Prefer the next URL from now on."""
        self._at = (self._at + 1) % len(self._urls)


class Follower:
    """A live copy of the list under one filter, while `run` runs."""

    def __init__(self, open_watch: OpenWatch, settings: ClientSettings, clock: Clock, rng: random.Random) -> None:
        self._open_watch = open_watch
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._endpoints = Endpoints(settings, rng)
        self._mirror = Mirror(settings.unconfirmed_limit_ms)
        self._subscriptions = Subscriptions()
        self._last_event_id: str | None = None
        self._received_ms: int | None = None
        self._connected_url: str | None = None
        self.last_error: PoolmusterError | None = None
        """Why the latest connection failed; ``None`` while one is open."""

    @property
    def has_list(self) -> bool:
        """Whether a list was ever received."""
        return self._mirror.has_list

    @property
    def pools(self) -> Mapping[PoolKey, Document]:
        """The mirror: the service's list, as of `age_ms` ago."""
        return self._mirror.pools

    @property
    def pools_json(self) -> bytes:
        """The mirror, byte for byte as the member ``pools`` of the service's list."""
        return self._mirror.pools_json

    @property
    def usable(self) -> Mapping[PoolKey, Usable]:
        """The mirror and the pools that an incomplete list lacked."""
        self._expire()
        return self._mirror.usable

    def pools_of(self, model: str) -> tuple[Usable, ...]:
        """The pools of the usable set that serve a model, by id or alias; confirmed ones first."""
        self._expire()
        return self._mirror.pools_of(model)

    @property
    def complete(self) -> bool:
        """Whether the list is known to hold every live pool: the service says so, and the watch is open."""
        return self._mirror.complete and self._connected_url is not None

    @property
    def sources(self) -> tuple[SourceReport, ...]:
        """The sources of the list as the service last reported them, with the time since then taken off."""
        passed_ms = self._clock.monotonic_ms() - self._mirror.sources_at_ms
        return tuple(source.later(passed_ms) for source in self._mirror.sources)

    @property
    def revision(self) -> str | None:
        """The revision of the mirror."""
        return self._mirror.revision

    @property
    def age_ms(self) -> int | None:
        """The time since the service last sent anything; ``None`` before there is a list."""
        if self._received_ms is None or not self._mirror.has_list:
            return None
        return self._clock.monotonic_ms() - self._received_ms

    @property
    def connected_url(self) -> str | None:
        """The instance whose watch is open, if any."""
        return self._connected_url

    def updates(self) -> Subscription:
        """Every update from now on, to be iterated or dropped at any time. After the follower's end it ends at once.

        Where there is a list already it begins with an ``overrun``: the updates that led to the list came before.
        """
        return self._subscriptions.add(Update(kind=UpdateKind.OVERRUN) if self.has_list else None)

    def unsubscribe(self, subscription: Subscription) -> None:
        """End ``subscription``, also while other code holds it. A second call does nothing."""
        self._subscriptions.remove(subscription)

    def end(self) -> None:
        """End all updates. `run` does that itself, unless it is cancelled before it has begun."""
        self._connected_url = None
        self._subscriptions.end(None)

    async def run(self) -> None:
        """Follow until cancelled. Raises nothing else."""
        try:
            while True:
                await self._clock.sleep_ms(self._endpoints.choose(self._clock.monotonic_ms()))
                await self._connect(self._endpoints.url)
                self._expire()
        except Exception as bug:  # consumers would wait for ever, so they get it too
            self._subscriptions.end(bug)
            raise
        finally:
            self.end()

    async def _connect(self, url: str) -> None:
        """One connection, from its opening to its end, whatever that is."""
        opened_ms = self._clock.monotonic_ms()
        closing: Closing | None = None
        error: PoolmusterError | None = None
        try:
            closing = await self._read_watch(url)
        except WatchTimeout:
            error = Unreachable(f"{url} has been silent for {self._settings.silence_limit_ms / 1000:g} s.")
        except MalformedEvent as malformed:
            self._last_event_id = None  # only a whole list brings back what is lost
            error = malformed
        except PoolmusterError as failure:
            error = failure
        if error is None and closing is None:
            error = Unreachable(f"{url} ended the watch.")
        _clear_tracebacks(error)
        now_ms = self._clock.monotonic_ms()
        proved_good = self._connected_url is not None and now_ms - opened_ms >= self._settings.silence_limit_ms / 3
        if proved_good:
            self._endpoints.worked()
        if self._connected_url is not None or error is not None:
            self._connected_url, self.last_error = None, error
            self._subscriptions.publish(Update(kind=UpdateKind.DISCONNECTED, url=url, error=error))
        if closing is not None and proved_good:
            if closing.reason == "shutdown":
                self._endpoints.advance()
            await self._clock.sleep_ms(self._rng.uniform(0, CLOSING_JITTER_MS))
        else:
            asked_s = error.retry_after_s if isinstance(error, NotReady | LimitReached) else 0
            self._endpoints.failed(now_ms, asked_s * 1000)

    async def _read_watch(self, url: str) -> Closing | None:
        """Apply events until the watch ends. Returns its `Closing` if it had one."""
        async with (
            Watchdog(self._clock, self._settings.silence_limit_ms) as watchdog,
            self._open_watch(url, self._last_event_id) as stream,
        ):
            catch_up = CatchUp(stream.revision, resumed=self._last_event_id is not None)

            def on_progress() -> None:
                watchdog.reset()
                self._received_ms = self._clock.monotonic_ms()

            async with aclosing(read_events(stream.chunks, self._settings.answer_limit_bytes, on_progress)) as events:
                async for event in events:
                    for admitted in catch_up.admit(event):
                        self._apply(admitted, url, connected=catch_up.done)
                    if isinstance(event, Closing):
                        return event
        return None

    def _apply(self, event: Event, url: str, *, connected: bool) -> None:
        if event.id is not None or isinstance(event, WatchSnapshot):
            self._last_event_id = event.id
        forgotten = self._mirror.apply(event, self._clock.monotonic_ms())
        if self._connected_url is None and connected:
            self._connected_url, self.last_error = url, None
            self._subscriptions.publish(Update(kind=UpdateKind.CONNECTED, url=url))
        if event.type in _KINDS:
            update = Update(kind=_KINDS[event.type], event=event, forgotten=forgotten, url=url)
            self._subscriptions.publish(update)
        self._expire()

    def _expire(self) -> None:
        if forgotten := self._mirror.expire(self._clock.monotonic_ms()):
            self._subscriptions.publish(Update(kind=UpdateKind.FORGOTTEN, forgotten=forgotten))


def _clear_tracebacks(error: BaseException | None) -> None:
    """Errors are kept and handed on; the frames they came through would keep the last events, whole lists, alive."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


_KINDS = {kind.value: kind for kind in list(UpdateKind)[:5]}
