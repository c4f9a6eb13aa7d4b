"""The broadcaster: wakes watchers after changes, in batches between which other tasks run.

It has no part in formats or connections. Watchers with the same filter form a group, and a group without an event to
send is not woken.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from poolmuster.ports.clock import Clock

BATCH = 50
"""Watchers woken in one turn of the event loop: about 2 ms of work."""

KEEP_ALIVE_EVERY_MS = 500


class Subscriber(Protocol):
    """One watcher, as the broadcaster sees it."""

    def wake(self) -> None:
        """There is an event to send."""
        ...

    def wake_if_due(self, now_ms: int) -> None:
        """Wake where a keep-alive or the end of the stream is due."""
        ...


class SubscriberGroup(Protocol):
    """Watchers with the same filter."""

    def poll(self) -> bool:
        """Whether there is an event for its watchers since the last call."""
        ...

    def subscribers(self) -> Iterable[Subscriber]:
        """Its watchers."""
        ...


class Broadcaster:
    """Wakes the groups' watchers."""

    def __init__(self, clock: Clock, on_broadcast: Callable[[int], None] = lambda _: None) -> None:
        self._clock = clock
        self._on_broadcast = on_broadcast
        self._changed = asyncio.Event()
        self._changed_ms: int | None = None
        self.groups: set[SubscriberGroup] = set()

    def wake(self) -> None:
        """There were changes. Cheap; any number of calls before the next round make one round."""
        if self._changed_ms is None:
            self._changed_ms = self._clock.monotonic_ms()
            self._changed.set()

    async def run(self) -> None:
        """Wake groups after changes, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            since_ms, self._changed_ms = self._changed_ms, None
            woken = 0
            for group in list(self.groups):
                if group.poll():
                    woken = await self._wake_all(group, woken)
                # Holding ten thousand new changes against one filter takes 8 ms.
                await asyncio.sleep(0)
            if since_ms is not None:
                self._on_broadcast(self._clock.monotonic_ms() - since_ms)

    async def _wake_all(self, group: SubscriberGroup, woken: int) -> int:
        for waiter in list(group.subscribers()):
            waiter.wake()
            woken += 1
            if woken % BATCH == 0:
                await asyncio.sleep(0)
        return woken

    async def run_keep_alive(self) -> None:
        """Wake watchers whose keep-alive or end is due, until cancelled."""
        while True:
            await self._clock.sleep_ms(KEEP_ALIVE_EVERY_MS)
            now_ms = self._clock.monotonic_ms()
            looked_at = 0
            for group in list(self.groups):
                for waiter in list(group.subscribers()):
                    waiter.wake_if_due(now_ms)
                    looked_at += 1
                    if looked_at % BATCH == 0:
                        await asyncio.sleep(0)

    def wake_everyone(self) -> None:
        """Wake every watcher at once, for the end of the service."""
        for group in self.groups:
            for waiter in group.subscribers():
                waiter.wake()
