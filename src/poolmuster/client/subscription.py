"""One consumer of a follower's updates, with a bounded queue."""

import asyncio
from collections import deque
from enum import StrEnum

import msgspec

from poolmuster.client.events import Event
from poolmuster.model.errors import PoolmusterError
from poolmuster.model.key import PoolKey


class UpdateKind(StrEnum):
    """What happened. The first five are events of the watch.

    ``forgotten``: pools that were unconfirmed for too long left the usable set. ``connected`` and ``disconnected``
    are about the watch itself. ``overrun``: this consumer was too slow, so that updates were left out; all that it
    needs is to look at the follower again.
    """

    SNAPSHOT = "snapshot"
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    COMPLETENESS = "completeness"
    FORGOTTEN = "forgotten"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    OVERRUN = "overrun"


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """One step of what a follower holds. ``forgotten`` are unconfirmed pools that left the usable set with it."""

    kind: UpdateKind
    event: Event | None = None
    forgotten: tuple[PoolKey, ...] = ()
    url: str | None = None
    error: PoolmusterError | None = None


QUEUE_LIMIT = 10_000


class Subscription:
    """An async iterator of `Update`. It ends, with the error if there is one, when the follower does."""

    def __init__(self, limit: int = QUEUE_LIMIT) -> None:
        self._limit = limit
        self._queue: deque[Update] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, update: Update) -> None:
        if len(self._queue) >= self._limit:
            self._queue.clear()
            update = Update(kind=UpdateKind.OVERRUN)
        self._queue.append(update)
        self._wake.set()

    def end(self, error: BaseException | None) -> None:
        self._ended, self._error = True, error
        self._wake.set()

    def take_all(self) -> list[Update]:
        """The updates that wait, without waiting for more."""
        waiting = list(self._queue)
        self._queue.clear()
        return waiting

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Update:
        while not self._queue:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._queue.popleft()
