"""The client for asyncio programs."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self, TypeVar, Unpack

from poolmuster.client.api import DiscoveryApi, Filters, pairs_of
from poolmuster.client.errors import may_be_answered_elsewhere
from poolmuster.client.follow import Follower
from poolmuster.client.responses import ApiResponse, PoolList
from poolmuster.client.settings import DEFAULT_URL, ClientSettings
from poolmuster.client.transport import Session, open_session
from poolmuster.client.watch import WatchStream
from poolmuster.model.errors import PoolmusterError
from poolmuster.model.key import PoolKey, parse_key
from poolmuster.model.schema import RegistrationResponse, RouterReplica
from poolmuster.platform.lease_clock import SystemClock
from poolmuster.ports.clock import Clock

T = TypeVar("T")


def settings_of(urls: str | Iterable[str] | ClientSettings) -> ClientSettings:
    """Settings from URLs, given one by one or in one string with commas. Raises `InvalidInput`."""
    if isinstance(urls, ClientSettings):
        return urls
    given = urls.replace(",", " ").split() if isinstance(urls, str) else list(urls)
    return ClientSettings(urls=tuple(dict.fromkeys(url.rstrip("/") for url in given)))


def as_key(key: PoolKey | str) -> PoolKey:
    """A key, also from its form for people, ``cluster/namespace/name``."""
    return key if isinstance(key, PoolKey) else parse_key(key)


class AsyncClient:
    """Asks one discovery service, which may have several instances. Use it as a context manager.

    ``urls`` are base URLs of its instances. A call goes to the first that answers, past those that are down, not ready,
    or behind a proxy that answers in their place; where none answers, it raises the last one's error. Every call raises
    `poolmuster.client.Unreachable` or another error of `poolmuster.model.errors`. ``clock`` and ``rng`` are for tests.
    """

    def __init__(
        self,
        urls: str | Iterable[str] | ClientSettings = DEFAULT_URL,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings_of(urls)
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311 - it spreads clients out, and guards nothing
        self._session: Session | None = None
        self.apis: tuple[DiscoveryApi, ...] = ()
        """Each instance by itself."""

    async def __aenter__(self) -> Self:
        session = self._session = open_session(self.settings, self._clock)
        self.apis = tuple(DiscoveryApi(url, session, self.settings) for url in self.settings.urls)
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._session is not None:
            self.apis = ()
            await self._session.close()

    async def list(self, **filters: Unpack[Filters]) -> PoolList:
        """The live pools: ``await client.list(model="llama-70b", region=["eu-1", "eu-2"])``."""
        return await self._first(lambda api: api.list(pairs_of(filters)))

    async def get(self, key: PoolKey | str) -> ApiResponse:
        """One pool with its lease and changes. Raises `NotFound` for one that is not listed and was not lately."""
        found = as_key(key)
        return await self._first(lambda api: api.get(found))

    async def changes(self, since_s: float | None = None, **filters: Unpack[Filters]) -> ApiResponse:
        """The changes of the last ``since_s`` seconds in one instance."""
        return await self._first(lambda api: api.changes(since_s, pairs_of(filters)))

    async def status(self) -> ApiResponse:
        """The status of one instance."""
        return await self._first(lambda api: api.status())

    async def routers(self) -> tuple[RouterReplica, ...]:
        """The router replicas that relays should know of."""
        return await self._first(lambda api: api.routers())

    async def register(self, registration: bytes | Mapping[str, Any]) -> RegistrationResponse:
        """Register a pool for one lease, or renew it. Raises `InvalidInput`, `RelayDeregistered`, `LimitReached`."""
        return await self._first(lambda api: api.register(registration))

    async def deregister(
        self,
        key: PoolKey | str,
        *,
        relay_id: str | None = None,
        reason: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Take a pool off the list at once; with ``relay_id`` only while that relay is the latest."""
        found = as_key(key)
        await self._first(lambda api: api.deregister(found, relay_id=relay_id, reason=reason, detail=detail))

    @asynccontextmanager
    async def follow(self, **filters: Unpack[Filters]) -> AsyncIterator[Follower]:
        """A live copy of the list, for as long as the block lasts. It reconnects by itself and never gives up."""
        apis, pairs = {api.url: api for api in self._in_use()}, pairs_of(filters)

        def open_watch(url: str, last_event_id: str | None) -> AbstractAsyncContextManager[WatchStream]:
            return apis[url].watch(pairs, last_event_id)

        follower = Follower(open_watch, self.settings, self._clock, self._rng)
        running = asyncio.create_task(follower.run(), name="poolmuster-follow")
        try:
            yield follower
        finally:
            running.cancel()
            await asyncio.wait([running])
            follower.end()
        if not running.cancelled() and (bug := running.exception()) is not None:
            raise bug

    async def _first(self, call: Callable[[DiscoveryApi], Awaitable[T]]) -> T:
        """The response of the first instance that has one."""
        last: PoolmusterError | None = None
        for api in self._in_use():
            try:
                return await call(api)
            except PoolmusterError as error:
                if not may_be_answered_elsewhere(error):
                    raise
                last = error
        assert last is not None
        raise last

    def _in_use(self) -> tuple[DiscoveryApi, ...]:
        if not self.apis:
            raise RuntimeError("the client is used outside of its `async with` block")
        return self.apis
