"""One connection of the watch: bytes in, events out, a limit on silence, and the way back to an up-to-date mirror."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

import msgspec

from poolmuster.client.errors import InvalidResponse
from poolmuster.client.events import CompletenessChanged, Event, WatchSnapshot, read_event
from poolmuster.platform.ndjson import LineSplitter, SizeLimitExceeded
from poolmuster.ports.clock import Clock

PROGRESS_BYTES = 4096
"""A long line that still arrives shows that the connection is alive; a byte now and then does not."""


class WatchStream(msgspec.Struct, frozen=True):
    """An open watch. ``revision`` is the service's latest at its beginning, where the response had it."""

    chunks: AsyncIterator[bytes]
    revision: str | None = None


OpenWatch = Callable[[str, str | None], AbstractAsyncContextManager[WatchStream]]
"""Opens the watch of the instance at a URL, from after an event id where the instance still can. Opening it and reading
its chunks raise `PoolmusterError`."""


async def read_events(
    chunks: AsyncIterator[bytes], limit_bytes: int, on_progress: Callable[[], None]
) -> AsyncGenerator[Event, None]:
    """The events of a watch that this version knows. ``on_progress`` is called for each chunk that shows life.

    Raises `MalformedEvent` when the content of an event is lost, `InvalidResponse` when a line is over
    ``limit_bytes``. A line without an end, at the end of the stream, is dropped: it confirmed nothing.
    """
    splitter = LineSplitter(limit_bytes)
    pending_bytes = 0
    async for chunk in chunks:
        try:
            lines = list(splitter.feed(chunk))
        except SizeLimitExceeded as error:
            raise InvalidResponse(f"A line of the watch is {error}.") from error
        pending_bytes += len(chunk)
        if lines or pending_bytes >= PROGRESS_BYTES:
            pending_bytes = 0
            on_progress()
        for line in lines:
            event = read_event(line)
            if event is not None:
                yield event


class WatchTimeout(Exception):
    """Nothing arrived for as long as the watchdog waits. It stays inside this package."""


class Watchdog:
    """Guards a block of code, as a connection can be dead without an error.

    Where `reset` is not called for ``limit_ms`` it cancels the block, which then raises `WatchTimeout`.
    """

    def __init__(self, clock: Clock, limit_ms: int) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._reset_ms = clock.monotonic_ms()
        self._expired = False
        self._guarded: asyncio.Task[object] | None = None
        self._watching: asyncio.Task[None] | None = None

    def reset(self) -> None:
        """Start the time limit again."""
        self._reset_ms = self._clock.monotonic_ms()

    async def __aenter__(self) -> Self:
        self._guarded = asyncio.current_task()
        assert self._guarded is not None
        self._cancelling = self._guarded.cancelling()
        self.reset()
        self._watching = asyncio.create_task(self._watch(self._guarded))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._guarded is not None
        assert self._watching is not None
        self._watching.cancel()
        # As in asyncio.timeout: only our own cancellation becomes `WatchTimeout`, one from outside goes on.
        if self._expired and self._guarded.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise WatchTimeout from error

    async def _watch(self, guarded: asyncio.Task[object]) -> None:
        while (left_ms := self._reset_ms + self._limit_ms - self._clock.monotonic_ms()) > 0:
            await self._clock.sleep_ms(left_ms)
        self._expired = True
        guarded.cancel()


def number_of(revision: str | None, boot: str | None = None) -> int | None:
    """The ``N`` of ``BOOT.N``, or ``None`` where it is not of that form or of another boot."""
    found, _, number = (revision or "").rpartition(".")
    if not found or not number.isascii() or not number.isdecimal() or (boot is not None and found != boot):
        return None
    return int(number)


class CatchUp:
    """Holds events of one connection back until the mirror is as new as the service was when it began.

    A resumed watch begins with the completeness of *now*, and the missed changes follow. A list without these must not
    count as complete, nor drop unconfirmed pools, so the completeness waits for them. ``latest`` is the revision of the
    response's header, if any. Unless the watch ``resumed``, events before the first snapshot are dropped.
    """

    def __init__(self, latest: str | None, *, resumed: bool) -> None:
        self._latest = latest
        self._held: CompletenessChanged | None = None
        self._resumed = resumed
        self.done = False
        """Whether the mirror is as new as the service was when this connection began."""

    def admit(self, event: Event) -> list[Event]:
        """The events to apply now, in order."""
        if self.done:
            return [event]
        if isinstance(event, WatchSnapshot):
            self.done = True
            return [event]
        if isinstance(event, CompletenessChanged) and self._resumed:
            self._held = event
            admitted: list[Event] = []
        elif self._held is not None:
            admitted = [event]
        else:
            return []
        if self._is_behind(event, self._held):
            return admitted
        self.done = True
        place = {"id": event.id or self._held.id, "revision": event.revision or self._held.revision}
        return [*admitted, msgspec.structs.replace(self._held, **place)]

    def _is_behind(self, event: Event, held: CompletenessChanged) -> bool:
        # Through a filter the last number may never appear; then the next ping, which bears the latest, ends this.
        boot = (event.revision or "").rpartition(".")[0]
        numbers = [number_of(revision, boot) for revision in (self._latest, held.revision)]
        known = [number for number in numbers if number is not None]
        place = number_of(event.id.rpartition(".")[0] if event.id else event.revision)
        return bool(known) and place is not None and place < max(known)
