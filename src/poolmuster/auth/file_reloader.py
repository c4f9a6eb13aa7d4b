"""Files that credentials rest on, read again while the program runs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from poolmuster.platform.files import WatchedFiles
from poolmuster.platform.threads import run_in_daemon_thread
from poolmuster.ports.clock import Clock

EVERY_MS = 250
"""A change is taken when two readings agree, so within half a second; two are promised."""

log = structlog.get_logger(__name__)


STALLED_MS = 2_000
"""How long a reading may take before it is told: nothing that is revoked meanwhile is known to be."""


class WatchedEntry(msgspec.Struct):
    """Files under one name for people, and what is to be done when they say something new."""

    what: str
    files: WatchedFiles[Any]
    changed: Callable[[], None]
    stalled: bool = False

    @property
    def usable(self) -> bool:
        """Whether what counts is what the files say."""
        return self.files.problem is None and not self.stalled


class FileReloader:
    """Reads files again, beside the event loop: a file system that hangs holds up nobody."""

    def __init__(self, kept: Sequence[WatchedEntry], clock: Clock) -> None:
        self.kept = tuple(kept)
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled. Each by itself, so that a file which hangs leaves the others their time."""
        async with asyncio.TaskGroup() as group:
            for each in self.kept:
                group.create_task(self._keep(each))

    async def _keep(self, kept: WatchedEntry) -> None:
        while True:
            await self._clock.sleep_ms(EVERY_MS)
            await self._look(kept)

    async def _look(self, kept: WatchedEntry) -> None:
        if not await self._refresh(kept):
            return
        if kept.files.problem is not None:
            log.error("A file cannot be used; what it said before still counts", what=kept.what, why=kept.files.problem)
            return
        kept.changed()
        log.info("A file was read again", what=kept.what, files=list(kept.files.paths))

    async def _refresh(self, kept: WatchedEntry) -> bool:
        reading = asyncio.ensure_future(run_in_daemon_thread("credential-files", kept.files.refresh))
        timer = asyncio.ensure_future(self._clock.sleep_ms(STALLED_MS))
        try:
            await asyncio.wait((reading, timer), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                kept.stalled = True
                log.error("A file cannot be read: nothing comes; what it said before still counts", what=kept.what)
            return await reading
        finally:
            kept.stalled = False
            timer.cancel()
            reading.cancel()
