"""The client for programs without asyncio: the async one, in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar, Unpack

from poolmuster.client.api import Filters
from poolmuster.client.async_client import AsyncClient
from poolmuster.client.follow import Follower
from poolmuster.client.pool_index import Usable
from poolmuster.client.responses import ApiResponse, Document, PoolList, SourceReport
from poolmuster.client.settings import DEFAULT_URL, ClientSettings
from poolmuster.client.subscription import Subscription, Update
from poolmuster.model.key import PoolKey
from poolmuster.model.schema import RegistrationResponse, RouterReplica

T = TypeVar("T")


class NotInUse(RuntimeError):
    """A call outside of the client's ``with`` block: a bug of the program that uses it."""


class Client:
    """`AsyncClient` for synchronous code: the same calls, which block. Use it as a context manager.

    It may be used from several threads at once.
    """

    def __init__(self, urls: str | Iterable[str] | ClientSettings = DEFAULT_URL) -> None:
        self._client = AsyncClient(urls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Guards the loop: work that is given to it after its end would never return."""

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("the client is used in two `with` blocks at once")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="poolmuster-client", daemon=True)
        self._thread.start()
        try:
            self._wait(self._client.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._wait(self._client.__aexit__(*exception))
        finally:
            self._stop()

    def _stop(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        assert loop is not None
        assert self._thread is not None
        asyncio.run_coroutine_threadsafe(_end_all(loop), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    def list(self, **filters: Unpack[Filters]) -> PoolList:
        """The live pools (`AsyncClient.list`)."""
        return self._wait(self._client.list(**filters))

    def get(self, key: PoolKey | str) -> ApiResponse:
        """One pool with its lease and changes (`AsyncClient.get`)."""
        return self._wait(self._client.get(key))

    def changes(self, since_s: float | None = None, **filters: Unpack[Filters]) -> ApiResponse:
        """The latest changes (`AsyncClient.changes`)."""
        return self._wait(self._client.changes(since_s, **filters))

    def status(self) -> ApiResponse:
        """The status of one instance (`AsyncClient.status`)."""
        return self._wait(self._client.status())

    def routers(self) -> tuple[RouterReplica, ...]:
        """The router replicas (`AsyncClient.routers`)."""
        return self._wait(self._client.routers())

    def register(self, registration: bytes | Mapping[str, Any]) -> RegistrationResponse:
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
        with self._lock:
            if self._loop is None:
                work.close()
                raise NotInUse("the client is used outside of its `with` block")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise NotInUse("the client's `with` block has ended, and with it this call") from None
        except BaseException:
            future.cancel()  # Ctrl-C in the waiting thread: do not leave the call running
            raise


async def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the calls that other threads still wait for."""
    waiting = asyncio.all_tasks() - {asyncio.current_task()}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await loop.shutdown_default_executor()


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
    def pools(self) -> Mapping[PoolKey, Document]:
        """The mirror (`Follower.pools`)."""
        return self._read(lambda: self._follower.pools)

    @property
    def pools_json(self) -> bytes:
        """The mirror, byte for byte (`Follower.pools_json`)."""
        return self._read(lambda: self._follower.pools_json)

    @property
    def usable(self) -> Mapping[PoolKey, Usable]:
        """The usable set (`Follower.usable`)."""
        return self._read(lambda: self._follower.usable)

    def pools_of(self, model: str) -> tuple[Usable, ...]:
        """The usable pools that serve a model (`Follower.pools_of`)."""
        return self._read(lambda: self._follower.pools_of(model))

    @property
    def complete(self) -> bool:
        """Whether the list is known to hold every live pool (`Follower.complete`)."""
        return self._follower.complete

    @property
    def sources(self) -> tuple[SourceReport, ...]:
        """The sources as last reported (`Follower.sources`)."""
        return self._read(lambda: self._follower.sources)

    @property
    def revision(self) -> str | None:
        """The revision of the mirror (`Follower.revision`)."""
        return self._read(lambda: self._follower.revision)

    @property
    def connected_url(self) -> str | None:
        """The instance whose watch is open, if any (`Follower.connected_url`)."""
        return self._follower.connected_url

    @property
    def age_ms(self) -> int | None:
        """The time since the service last sent anything (`Follower.age_ms`)."""
        return self._read(lambda: self._follower.age_ms)

    def updates(self) -> "SyncSubscription":
        """Every update from this call on, to be iterated or dropped at any time (`Follower.updates`)."""
        return SyncSubscription(self._read(self._follower.updates), self._follower, self._wait)

    def _read(self, what: Callable[[], T]) -> T:
        result: T = self._wait(_call(what))
        return result


class SyncSubscription:
    """`Subscription` for synchronous code: an iterator that blocks for each `Update`, and ends with its follower."""

    def __init__(
        self, subscription: Subscription, follower: Follower, wait: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._subscription = subscription
        self._follower = follower
        self._wait = wait

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Update:
        try:
            update: Update = self._wait(self._subscription.__anext__())
        except (StopAsyncIteration, NotInUse):
            raise StopIteration from None
        return update

    def close(self) -> None:
        """End it, also in another thread that waits for the next update. A second call does nothing."""
        with suppress(NotInUse):  # then nothing more comes anyway
            self._wait(_call(lambda: self._follower.unsubscribe(self._subscription)))


async def _call(what: Callable[[], T]) -> T:
    return what()
