"""Follows the list through everything: cuts, silence, restarts, instances that come and go.

It holds the last list it was given through any outage, and always tells how old it is and whether it is complete. It
never gives up; whoever started it ends it.
"""

import random
from collections.abc import Mapping
from contextlib import aclosing

from poolmuster.client.catchup import CatchUp
from poolmuster.client.endpoints import Endpoints
from poolmuster.client.errors import NotReady, Unreachable
from poolmuster.client.events import Closing, Event, MalformedEvent, Snapshot
from poolmuster.client.mirror import Mirror
from poolmuster.client.pool_index import Usable
from poolmuster.client.responses import Document, SourceReport
from poolmuster.client.settings import ClientSettings
from poolmuster.client.subscription import Subscription, Subscriptions, Update, UpdateKind
from poolmuster.client.watch import WatchSource, read_events
from poolmuster.client.watchdog import Watchdog, WatchTimeout
from poolmuster.model.errors import LimitReached, PoolmusterError
from poolmuster.model.key import PoolKey
from poolmuster.ports.clock import Clock

CLOSING_JITTER_MS = 500
"""Watchers that one instance closes together come back spread over this time."""


class Follower:
    """A live copy of the list under one filter, once `run` is running."""

    def __init__(self, source: WatchSource, settings: ClientSettings, clock: Clock, chance: random.Random) -> None:
        self._source = source
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._endpoints = Endpoints(settings, chance)
        self._mirror = Mirror(settings.unconfirmed_limit_ms)
        self._subscriptions = Subscriptions()
        self._last_event_id: str | None = None
        self._heard_ms: int | None = None
        self._connected_url: str | None = None
        self.last_error: PoolmusterError | None = None
        """Why the latest connection failed; ``None`` while one stands."""

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
        """Whether the list is known to hold every live pool: the service says so, and the watch stands."""
        return self._mirror.complete and self._connected_url is not None

    @property
    def sources(self) -> tuple[SourceReport, ...]:
        """The sources of the list as the service last told them, with the time that has passed since taken off."""
        passed_ms = self._clock.monotonic_ms() - self._mirror.sources_at_ms
        return tuple(source.later(passed_ms) for source in self._mirror.sources)

    @property
    def revision(self) -> str | None:
        """The revision of the mirror."""
        return self._mirror.revision

    @property
    def age_ms(self) -> int | None:
        """How long ago the service was last heard; ``None`` before there is a list."""
        if self._heard_ms is None or not self._mirror.has_list:
            return None
        return self._clock.monotonic_ms() - self._heard_ms

    @property
    def connected_url(self) -> str | None:
        """The instance that the watch stands with, if it stands."""
        return self._connected_url

    def updates(self) -> Subscription:
        """Every update from now on, to be iterated or dropped at any time. After the follower's end it ends at once.

        Where there is a list already it begins with an ``overrun``: what led to the list came before.
        """
        return self._subscriptions.add(Update(kind=UpdateKind.OVERRUN) if self.has_list else None)

    def unsubscribe(self, subscription: Subscription) -> None:
        """End ``subscription``, whoever else still holds it. Once more does nothing."""
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
        except Exception as bug:  # told to every consumer, who would wait for ever, and raised
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
            closing = await self._listen(url)
        except WatchTimeout:
            error = Unreachable(f"{url} has been silent for {self._settings.silence_limit_ms / 1000:g} s.")
        except MalformedEvent as malformed:
            self._last_event_id = None  # what is lost can only be had again with a whole list
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
            self._tell(Update(kind=UpdateKind.DISCONNECTED, url=url, error=error))
        if closing is not None and proved_good:
            await self._part(closing)
        else:
            asked_s = error.retry_after_s if isinstance(error, NotReady | LimitReached) else 0
            self._endpoints.failed(now_ms, asked_s * 1000)

    async def _part(self, closing: Closing) -> None:
        """The instance said goodbye: come back almost at once, to another one if this one stops."""
        if closing.reason == "shutdown":
            self._endpoints.advance()
        await self._clock.sleep_ms(self._chance.uniform(0, CLOSING_JITTER_MS))

    async def _listen(self, url: str) -> Closing | None:
        """Take in events until the watch ends. Returns its `Closing` if it had one."""
        limit_bytes = self._settings.answer_limit_bytes
        async with (
            Watchdog(self._clock, self._settings.silence_limit_ms) as watchdog,
            self._source.open(url, self._last_event_id) as stream,
        ):
            authorizer = CatchUp(stream.revision, resumed=self._last_event_id is not None)

            def heard() -> None:
                watchdog.heard()
                self._heard_ms = self._clock.monotonic_ms()

            async with aclosing(read_events(stream.chunks, limit_bytes, heard)) as events:
                async for event in events:
                    for admitted in authorizer.admit(event):
                        self._take(admitted, url, connected=authorizer.done)
                    if isinstance(event, Closing):
                        return event
        return None

    def _take(self, event: Event, url: str, *, connected: bool) -> None:
        if event.id is not None or isinstance(event, Snapshot):
            self._last_event_id = event.id
        forgotten = self._mirror.apply(event, self._clock.monotonic_ms())
        if self._connected_url is None and connected:
            self._connected_url, self.last_error = url, None
            self._tell(Update(kind=UpdateKind.CONNECTED, url=url))
        if event.type in _TOLD:
            self._tell(Update(kind=_TOLD[event.type], event=event, forgotten=forgotten, url=url))
        self._expire()

    def _expire(self) -> None:
        if forgotten := self._mirror.expire(self._clock.monotonic_ms()):
            self._tell(Update(kind=UpdateKind.FORGOTTEN, forgotten=forgotten))

    def _tell(self, update: Update) -> None:
        self._subscriptions.tell(update)


def _clear_tracebacks(error: BaseException | None) -> None:
    """Errors are kept and handed on; the frames they came through would keep the last events, whole lists, alive."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


_TOLD = {kind.value: kind for kind in list(UpdateKind)[:5]}
