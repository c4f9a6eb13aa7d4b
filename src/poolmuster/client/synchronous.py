"""The client for programs without asyncio: the async one, in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from poolmuster.client.answers import Answer, Document, Listing, SourceReport
from poolmuster.client.api import Filters
from poolmuster.client.asynchronous import AsyncClient
from poolmuster.client.follow import Follower
from poolmuster.client.mirror import Usable
from poolmuster.client.settings import DEFAULT_URL, ClientSettings
from poolmuster.client.subscription import Subscription, Update
from poolmuster.model.key import PoolKey
from poolmuster.model.wire import Registered, RouterReplica

T = TypeVar("T")


class Client:
    """`AsyncClient` for synchronous code: the same calls, which block. Use it as a context manager.

    It may be used from several threads at once.
    """

    def __init__(self, urls: str | Iterable[str] | ClientSettings = DEFAULT_URL) -> None:
        self._client = AsyncClient(urls)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="poolmuster-client", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait(self._client.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait(self._client.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._wait(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def list(self, **filters: Unpack[Filters]) -> Listing:
        """The live pools (`AsyncClient.list`)."""
        return self._wait(self._client.list(**filters))

    def get(self, key: PoolKey | str) -> Answer:
        """Everything about one pool (`AsyncClient.get`)."""
        return self._wait(self._client.get(key))

    def changes(self, since_s: float | None = None, **filters: Unpack[Filters]) -> Answer:
        """What changed lately (`AsyncClient.changes`)."""
        return self._wait(self._client.changes(since_s, **filters))

    def status(self) -> Answer:
        """How one instance is doing (`AsyncClient.status`)."""
        return self._wait(self._client.status())

    def routers(self) -> tuple[RouterReplica, ...]:
        """The router replicas (`AsyncClient.routers`)."""
        return self._wait(self._client.routers())

    def register(self, registration: bytes | Mapping[str, Any]) -> Registered:
        """Register a pool for one lease (`AsyncClient.register`)."""
        return self._wait(self._client.register(registration))

    def deregister(
        self,
        key: PoolKey | str,
        *,
        relay_id: str | None = None,
        reason: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Take a pool off the list (`AsyncClient.deregister`)."""
        self._wait(self._client.deregister(key, relay_id=relay_id, reason=reason, detail=detail))

    @contextmanager
    def follow(self, **filters: Unpack[Filters]) -> Iterator["SyncFollower"]:
        """A live copy of the list, for as long as the block lasts (`AsyncClient.follow`)."""
        following = self._client.follow(**filters)
        follower = self._wait(following.__aenter__())
        try:
            yield SyncFollower(follower, self._wait)
        finally:
            self._wait(following.__aexit__(None, None, None))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise
        except BaseException:
            future.cancel()  # Ctrl-C in the waiting thread: do not leave the call running
            raise


class SyncFollower:
    """`Follower` for synchronous code. Each property is read whole at one moment."""

    def __init__(self, follower: Follower, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._follower = follower
        self._wait = wait

    @property
    def has_list(self) -> bool:
        """Whether a list was ever received."""
        return self._follower.has_list

    @property
    def pools(self) -> dict[PoolKey, Document]:
        """The mirror (`Follower.pools`)."""
        return self._read(lambda: self._follower.pools)

    @property
    def usable(self) -> dict[PoolKey, Usable]:
        """The usable set (`Follower.usable`)."""
        return self._read(lambda: self._follower.usable)

    @property
    def complete(self) -> bool:
        """Whether the list is known to hold every live pool (`Follower.complete`)."""
        return self._follower.complete

    @property
    def sources(self) -> tuple[SourceReport, ...]:
        """The sources as last told (`Follower.sources`)."""
        return self._read(lambda: self._follower.sources)

    @property
    def age_ms(self) -> int | None:
        """How long ago the service was last heard (`Follower.age_ms`)."""
        return self._read(lambda: self._follower.age_ms)

    def updates(self) -> Iterator[Update]:
        """Every update from this call on, blocking for each."""
        return self._iterate(self._read(self._follower.updates))

    def _iterate(self, subscription: Subscription) -> Iterator[Update]:
        try:
            while True:
                try:
                    yield self._wait(_next(subscription))
                except StopAsyncIteration:
                    return
        finally:
            self._read(lambda: self._follower.unsubscribe(subscription))

    def _read(self, what: Callable[[], T]) -> T:
        async def read() -> T:
            return what()

        result: T = self._wait(read())
        return result


async def _next(subscription: Subscription) -> Update:
    return await anext(subscription)
