"""One connection of the watch: bytes in, events out."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from poolmuster.client.errors import InvalidResponse
from poolmuster.client.events import Event, read_event
from poolmuster.platform.ndjson import LineSplitter, SizeLimitExceeded

PROGRESS_BYTES = 4096
"""A long line that still arrives is a sign of life, but a byte now and then is not."""


class WatchStream(msgspec.Struct, frozen=True):
    """An open watch. ``revision`` is the service's latest at its beginning, where the answer said so."""

    chunks: AsyncIterator[bytes]
    revision: str | None = None


class WatchSource(Protocol):
    """Opens watches. Opening, and reading the chunks, raises errors of the one tree."""

    def open(self, url: str, last_event_id: str | None) -> AbstractAsyncContextManager[WatchStream]:
        """The watch of the instance at ``url``, from after ``last_event_id`` where it still can."""
        ...


async def read_events(
    chunks: AsyncIterator[bytes], limit_bytes: int, heard: Callable[[], None]
) -> AsyncGenerator[Event, None]:
    """The events of a watch that this version knows; ``heard`` is called at each sign of life.

    Raises `MalformedEvent` when what an event stands for is lost, `InvalidResponse` when a line is over
    ``limit_bytes``. A
    line that the end of the stream cuts is dropped: nothing was confirmed of it.
    """
    splitter = LineSplitter(limit_bytes)
    unheard_bytes = 0
    async for chunk in chunks:
        try:
            lines = list(splitter.feed(chunk))
        except SizeLimitExceeded as error:
            raise InvalidResponse(f"A line of the watch is {error}.") from error
        unheard_bytes += len(chunk)
        if lines or unheard_bytes >= PROGRESS_BYTES:
            unheard_bytes = 0
            heard()
        for line in lines:
            event = read_event(line)
            if event is not None:
                yield event
