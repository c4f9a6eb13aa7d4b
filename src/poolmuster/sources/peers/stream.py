"""Following one peer's stream, for as long as it lasts, and when to try the next one."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable

from poolmuster.ports.clock import Clock
from poolmuster.sources.peers.errors import PeerRefused, PeerTrouble
from poolmuster.sources.peers.full_sync import SILENT_MS
from poolmuster.sources.peers.reader import PeerReader
from poolmuster.sources.peers.timeouts import deadline, timeout

IDENTIFY_MS = (250, 1_000, 5_000)
"""After so long it is asked who is at the address, and again; the last goes on."""

SUSPECT_MS = 2_500
"""For so long only new connections are made, one soon after the other, where it may not be one instance's address."""

STEADY_MS = 5_000
"""A stream that lasted so long is no reason to doubt streams."""

PAUSE_MS = 1_000
PAUSE_LIMIT_MS = 10_000
"""The pause before the next stream is tried doubles from the one to the other."""


class PeerStream:
    """Streams of ``reader``'s peer, one at a time.

    ``on_batch`` is told of each batch whether it is the first, and whether with it all there is was told.
    """

    def __init__(self, reader: PeerReader, clock: Clock, on_batch: Callable[[bool, bool], None]) -> None:
        self._reader = reader
        self._clock = clock
        self._on_batch = on_batch
        self._failures = 0
        self._next_ms = clock.monotonic_ms()
        self._suspect_until_ms = self._next_ms

    @property
    def is_suspect(self) -> bool:
        """Whether it is being found out who is at the address."""
        return self._clock.monotonic_ms() < self._suspect_until_ms

    def _suspect(self) -> None:
        self._failures = max(1, self._failures)
        self._next_ms = self._suspect_until_ms = self._clock.monotonic_ms() + SUSPECT_MS

    @property
    def trusted(self) -> bool:
        """Whether nothing is known against streams, so that one is all that is needed."""
        return self._failures == 0

    @property
    def due(self) -> bool:
        """Whether one may be tried now."""
        return self._clock.monotonic_ms() >= self._next_ms

    @property
    def is_receiving(self) -> bool:
        """Whether the present one has brought something."""
        return self._reader.stream_received_ms is not None

    def try_soon(self) -> None:
        """What was the matter may be over."""
        self._next_ms = self._clock.monotonic_ms()

    async def follow(self, first_word_ms: int, ended: Callable[[], bool]) -> None:
        """Read one until it ends, somebody else is found at the address, or ``ended``.

        Its first word has to come within ``first_word_ms``, each other one within three seconds of the one before.
        Raises what `PeerReader.stream` does, and `TimeoutError`.
        """
        began_ms = self._clock.monotonic_ms()
        self._reader.stream_received_ms = None

        def deadline_ms() -> int:
            heard_ms = self._reader.stream_received_ms
            return began_ms + first_word_ms if heard_ms is None else heard_ms + SILENT_MS

        streaming = asyncio.create_task(deadline(self._clock, deadline_ms, self._read(ended)))
        asking = asyncio.create_task(self._identify())
        try:
            await asyncio.wait((streaming, asking), return_when=asyncio.FIRST_COMPLETED)
            if streaming.done():
                self._plan(began_ms, refused=isinstance(streaming.exception(), PeerRefused))
                streaming.result()
            else:
                self._suspect()
        finally:
            for task in (streaming, asking):
                task.cancel()
            await asyncio.gather(streaming, asking, return_exceptions=True)
            self._reader.stream_received_ms = None
            del streaming, asking, task  # see `until`

    def _plan(self, began_ms: int, *, refused: bool) -> None:
        """A stream has ended: when is the next one due?"""
        now_ms = self._clock.monotonic_ms()
        if refused or (self.is_receiving and now_ms - began_ms >= STEADY_MS):
            self._failures = 0
        else:
            self._next_ms = now_ms + min(PAUSE_MS << self._failures, PAUSE_LIMIT_MS)
            self._failures = min(self._failures + 1, 8)

    async def _read(self, ended: Callable[[], bool]) -> None:
        async with contextlib.aclosing(self._reader.stream()) as batches:
            first = True
            async for all_told in batches:
                self._on_batch(first, all_told)
                first = False
                if ended():
                    self._suspect()
                    return

    async def _identify(self) -> None:
        """End once somebody else answers at the address than whose stream is read: it is not one instance's."""
        for after_ms in itertools.chain(IDENTIFY_MS, itertools.repeat(IDENTIFY_MS[-1])):
            await self._clock.sleep_ms(after_ms)
            with contextlib.suppress(PeerRefused, PeerTrouble, TimeoutError):
                boot_id = await timeout(self._clock, SILENT_MS, self._reader.identify())
                if boot_id is not None and self._reader.boot_id not in (None, boot_id):
                    return
