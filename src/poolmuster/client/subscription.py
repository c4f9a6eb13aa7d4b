"""The consumers of a follower's updates, each with a bounded queue.

A consumer need not unsubscribe: a follower holds weak references, and the last other reference ends a subscription.
"""

import asyncio
from collections import deque
from enum import StrEnum
from weakref import WeakSet

import msgspec

from poolmuster.client.events import Event
from poolmuster.model.errors import PoolmusterError
from poolmuster.model.key import PoolKey


class UpdateKind(StrEnum):
    """The kinds of updates. The first five are events of the watch.

    ``forgotten``: pools that were unconfirmed for too long left the usable set. ``connected`` and ``disconnected``
    are about the watch itself. ``overrun``: this consumer began later than the list, or was too slow, so that updates
    were left out; the follower's present content is all that it needs.
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
    """One change to a follower. ``forgotten`` are unconfirmed pools that left the usable set with it."""

    kind: UpdateKind
    event: Event | None = None
    forgotten: tuple[PoolKey, ...] = ()
    url: str | None = None
    error: PoolmusterError | None = None

    @property
    def size_bytes(self) -> int:
        """The size of its text; as Python's objects it is several times that."""
        keys_bytes = sum(len(part) for key in self.forgotten for part in key.parts)
        return keys_bytes + (0 if self.event is None else self.event.size_bytes)


QUEUE_LIMIT = 10_000
QUEUE_LIMIT_BYTES = 16 * 1024 * 1024


class Subscription:
    """An async iterator of `Update`. It ends, with the error if there is one, when the follower does.

    Its queue holds at most ``limit`` updates: one snapshot, and others of ``limit_bytes`` in all. One more replaces the
    whole queue by an ``overrun``, and follows that if it is a snapshot. While a task waits for an update, ``awaited``
    holds the subscription.
    """

    def __init__(
        self, awaited: "list[Subscription]", *, limit: int = QUEUE_LIMIT, limit_bytes: int = QUEUE_LIMIT_BYTES
    ) -> None:
        self._awaited = awaited
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._queue: deque[Update] = deque()
        self._snapshots = 0
        self._others_bytes = 0
        self._wake = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, update: Update) -> None:
        if not self._has_room_for(update):
            self.take_all()
            self._append(Update(kind=UpdateKind.OVERRUN))
            if update.kind is not UpdateKind.SNAPSHOT:
                return
        self._append(update)

    def end(self, error: BaseException | None) -> None:
        """Put nothing more. The queue can still be read."""
        self._ended, self._error = True, error
        self._wake.set()

    def take_all(self) -> list[Update]:
        """The updates in the queue, without waiting for more."""
        waiting = list(self._queue)
        self._queue.clear()
        self._snapshots = self._others_bytes = 0
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
            self._awaited.append(self)
            try:
                await self._wake.wait()
            finally:
                self._awaited.remove(self)
        update = self._queue.popleft()
        self._count(update, -1)
        return update

    def _has_room_for(self, update: Update) -> bool:
        if len(self._queue) >= self._limit:
            return False
        if update.kind is UpdateKind.SNAPSHOT:
            return self._snapshots == 0
        return self._others_bytes + update.size_bytes <= self._limit_bytes

    def _append(self, update: Update) -> None:
        self._queue.append(update)
        self._count(update, 1)
        self._wake.set()

    def _count(self, update: Update, sign: int) -> None:
        if update.kind is UpdateKind.SNAPSHOT:
            self._snapshots += sign
        else:
            self._others_bytes += sign * update.size_bytes


class Subscriptions:
    """The consumers of one follower, held weakly."""

    def __init__(self) -> None:
        self._known: WeakSet[Subscription] = WeakSet()
        # Those that a task waits for. An event loop holds its tasks weakly: a task that only its subscription refers to
        # would be collected while it waits.
        self._awaited: list[Subscription] = []
        self._ended = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._known)

    def add(self, first: Update | None = None) -> Subscription:
        """A new one, which begins with ``first`` if that is given. After `end` it has ended too."""
        subscription = Subscription(self._awaited)
        if self._ended:
            subscription.end(self._error)
        else:
            self._known.add(subscription)
            if first is not None:
                subscription.put(first)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """End this one, and empty its queue. A second call does nothing."""
        self._known.discard(subscription)
        subscription.take_all()
        subscription.end(None)

    def publish(self, update: Update) -> None:
        """Put an update into all queues."""
        for each in list(self._known):
            each.put(update)

    def end(self, error: BaseException | None) -> None:
        """End all, with ``error`` if there is one, and all that will be added. A second call does nothing."""
        if self._ended:
            return
        self._ended, self._error = True, error
        for each in list(self._known):
            each.end(error)
        self._known.clear()
