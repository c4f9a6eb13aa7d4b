"""The link to one address: how it is read, and how often it is tried.

| what is there | how it is read |
| --- | --- |
| a peer | a stream, given up after three seconds of silence; every few seconds a question who is there besides |
| a peer whose streams fail | once a second, with a stream tried in between, less and less often |
| several, it seems, behind one address | once a second, by a new connection each time |
| this instance itself | once a second it is asked who is there |
| nothing that listens, or nothing that answers | tried again a quarter of a second after each failure |
| something that does not let us in, or is no peer | tried again a second after each try |
"""

import asyncio
import contextlib

from poolmuster.core.peer_feed import Misread
from poolmuster.model.source import SourceReason
from poolmuster.ports.clock import Clock
from poolmuster.storage.peers.ledger import Ledger
from poolmuster.storage.peers.notes import GOOD, PeerNotes, PeersTold
from poolmuster.storage.peers.reader import PeerReader
from poolmuster.storage.peers.trouble import PeerRefused, PeerTrouble
from poolmuster.storage.peers.wholes import ANSWER_LIMIT_MS, SILENT_MS, WholeLists
from poolmuster.storage.peers.within import until, while_heard, within

FIRST_WORD_MS = 1_000
"""What a stream gets for its first word where streams have failed: reading once a second must not wait for it."""

RETRY_MS = 250
POLL_MS = 1_000
ASK_WHO_MS = 5_000
DOUBT_MS = 5_000
"""For so long only new connections are made, once another than whose stream was read turned up."""

STEADY_MS = 5_000
"""A stream that lasted so long is no reason to doubt streams."""

STREAM_PAUSE_LIMIT_MS = 10_000
REFUSED = "refused"
LASTING = (SourceReason.FORBIDDEN, SourceReason.BAD_ANSWER)
"""What somebody has to mend: nothing is gained by asking again at once."""

UNEXPECTED = "The log of this instance knows more."


class PeerLink:
    """Reads one address for as long as it runs."""

    def __init__(
        self, reader: PeerReader, ledger: Ledger, clock: Clock, notes: PeerNotes, told: PeersTold, wholes: WholeLists
    ) -> None:
        self._reader = reader
        self._address = reader.place.address
        self._ledger = ledger
        self._clock = clock
        self._notes = notes
        self._told = told
        self._wholes = wholes
        self._stream_failures = 0
        self._next_stream_ms = clock.monotonic_ms()
        self._poll_failed = False

    @property
    def _own(self) -> bool:
        account = self._ledger.circle.account(self._address)
        return account is not None and account.own

    async def run(self) -> None:
        """Read until cancelled."""
        self._wholes.add(self._reader)
        try:
            while True:
                began_ms = self._clock.monotonic_ms()
                good = await self._read_once()
                now_ms = self._clock.monotonic_ms()
                next_ms = began_ms + POLL_MS if good else now_ms + RETRY_MS
                await self._clock.sleep_ms(max(0, next_ms - now_ms))
        finally:
            await self._wholes.remove(self._reader)

    async def _read_once(self) -> bool:
        """Read once, in the way that is due. Returns whether to go on in a second, rather than at once."""
        try:
            if self._own:
                await self._look_at_own()
            elif self._may_stream():
                await self._stream()
                return False
            else:
                await self._poll()
        except PeerRefused:
            self._ledger.circle.refused(self._address, self._ledger.wake())
            self._ledger.changed()
            self._note(REFUSED, "Nobody listens there.")
        except PeerTrouble as trouble:
            self._fail(trouble.reason, trouble.detail)
            return trouble.reason in LASTING
        except TimeoutError:
            self._fail(SourceReason.TIMEOUT, "It does not answer.")
        except Misread:
            self._note(SourceReason.BAD_ANSWER, "What it says does not follow from what it said before.")
        except Exception as error:  # noqa: BLE001
            # Whatever a peer does to us, the next answer may be good: no instance ends for what another says.
            self._told.surprise(self._address, error)
            self._fail(SourceReason.INTERNAL, f"{type(error).__name__}. {UNEXPECTED}")
            return True
        else:
            return True
        return False

    def _may_stream(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        account = self._ledger.circle.account(self._address)
        standing = None if account is None else account.standing(now_ms)
        # Behind a load balancer only new connections show who is there.
        return now_ms >= self._next_stream_ms and (
            standing is None or standing.reason is not SourceReason.LOAD_BALANCER
        )

    def _note(self, outcome: str, detail: str = "") -> None:
        self._notes.read_ended(outcome)
        self._told.peer(self._address, outcome, detail)

    def _note_good(self) -> None:
        self._note(GOOD)
        self._wholes.look()

    def _fail(self, reason: SourceReason, detail: str) -> None:
        self._ledger.wake()
        self._ledger.circle.failed(self._address, reason, detail)
        self._ledger.changed()
        self._note(reason, detail)

    async def _look_at_own(self) -> None:
        asked_ms = self._ledger.wake()
        boot_id = await within(self._clock, SILENT_MS, self._reader.identify())
        if boot_id == self._ledger.boot_id:
            self._ledger.circle.read(self._address, boot_id, asked_ms - self._ledger.started_ms, asked_ms)
            self._ledger.changed()
            self._wholes.look()
        else:
            await self._ask()

    async def _stream(self) -> None:
        """Follow a stream until it ends, one way or another."""
        self._reader.heard_ms = None
        began_ms = self._clock.monotonic_ms()
        first_word_ms = FIRST_WORD_MS if self._stream_failures else SILENT_MS

        def deadline_ms() -> int:
            heard_ms = self._reader.heard_ms
            return began_ms + first_word_ms if heard_ms is None else heard_ms + SILENT_MS

        streaming = asyncio.create_task(until(self._clock, deadline_ms, self._follow()))
        asking = asyncio.create_task(self._ask_who())
        try:
            await asyncio.wait((streaming, asking), return_when=asyncio.FIRST_COMPLETED)
            if streaming.done():
                self._plan_streams(began_ms, refused=isinstance(streaming.exception(), PeerRefused))
                streaming.result()
            else:
                self._next_stream_ms = self._clock.monotonic_ms() + DOUBT_MS
        finally:
            for task in (streaming, asking):
                task.cancel()
            await asyncio.gather(streaming, asking, return_exceptions=True)

    def _plan_streams(self, began_ms: int, *, refused: bool) -> None:
        """A stream has ended: when is the next one due? Until then it is read once a second."""
        now_ms = self._clock.monotonic_ms()
        if refused or (self._reader.heard_ms is not None and now_ms - began_ms >= STEADY_MS):
            self._stream_failures = 0
        else:
            pause_ms = min(POLL_MS << self._stream_failures, STREAM_PAUSE_LIMIT_MS)
            self._stream_failures = min(self._stream_failures + 1, 8)
            self._next_stream_ms = now_ms + pause_ms

    async def _ask(self) -> None:
        self._reader.heard_ms = None
        await while_heard(self._clock, SILENT_MS, ANSWER_LIMIT_MS, lambda: self._reader.heard_ms, self._reader.poll())

    async def _poll(self) -> None:
        failed, self._poll_failed = self._poll_failed, True
        await self._ask()
        self._poll_failed = False
        if failed:
            # It was not only the streams that failed: with the one the other may be well again.
            self._stream_failures, self._next_stream_ms = 0, self._clock.monotonic_ms()
        self._note_good()

    async def _follow(self) -> None:
        first = True
        async with contextlib.aclosing(self._reader.stream()) as batches:
            async for all_told in batches:
                if first:
                    first = False
                    self._note_good()
                if all_told:
                    self._wholes.look()
                if self._own:
                    # From here on it is asked once a second; a stream of our own to us would tell us nothing.
                    return

    async def _ask_who(self) -> None:
        """End once somebody else answers at the address than whose stream is read: it is not one instance's."""
        while True:
            await self._clock.sleep_ms(ASK_WHO_MS)
            with contextlib.suppress(PeerRefused, PeerTrouble, TimeoutError):
                boot_id = await within(self._clock, SILENT_MS, self._reader.identify())
                if boot_id is not None and self._reader.boot_id not in (None, boot_id):
                    return
