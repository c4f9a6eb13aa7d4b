"""The link to one address: how it is read, and how often it is tried.

| what is there | how it is read |
| --- | --- |
| a peer | a stream, given up after three seconds of silence; every few seconds a question who is there besides |
| a peer whose streams fail | once a second, with a stream tried beside, less and less often, until one is heard |
| several, it seems, behind one address | once a second, by a new connection each time |
| this instance itself | once a second, in case it is another by then |
| nothing that listens, or nothing that answers | tried again a quarter of a second after each failure |
| something that does not let us in, or is no peer | tried again a second after each try |
"""

import asyncio

from poolmuster.core.peer_feed import Misread
from poolmuster.model.source import SourceReason
from poolmuster.ports.clock import Clock
from poolmuster.storage.peers.ledger import Ledger
from poolmuster.storage.peers.notes import GOOD, PeerNotes, PeersTold
from poolmuster.storage.peers.reader import PeerReader
from poolmuster.storage.peers.stream import PeerStream
from poolmuster.storage.peers.trouble import PeerRefused, PeerTrouble
from poolmuster.storage.peers.wholes import ANSWER_LIMIT_MS, SILENT_MS, WholeLists
from poolmuster.storage.peers.within import while_heard

FIRST_WORD_MS = 1_000
"""What a stream gets for its first word before it is read in the other way."""

RETRY_MS = 250
POLL_MS = 1_000
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
        self._stream = PeerStream(reader, clock, self._on_batch)
        self._trying: asyncio.Task[None] | None = None
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
            if (trying := self._trying) is not None:
                trying.cancel()
                await asyncio.gather(trying, return_exceptions=True)
            await self._wholes.remove(self._reader)

    async def _read_once(self) -> bool:
        """Read once, in the way that is due. Returns whether to go on in a second, rather than at once."""
        try:
            if self._own:
                await self._ask()
                self._wholes.look()
            elif self._trying is not None and self._stream.is_heard:
                await asyncio.wait([self._trying])
                return False
            elif self._may_stream() and self._stream.trusted:
                await self._stream.follow(FIRST_WORD_MS, lambda: self._own)
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
            return not self._stream.doubted
        return False

    def _may_stream(self) -> bool:
        account = self._ledger.circle.account(self._address)
        standing = None if account is None else account.standing(self._clock.monotonic_ms())
        # Behind a load balancer only new connections show who is there.
        return self._stream.due and (standing is None or standing.reason is not SourceReason.LOAD_BALANCER)

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

    async def _ask(self) -> None:
        self._reader.heard_ms = None
        await while_heard(self._clock, SILENT_MS, ANSWER_LIMIT_MS, lambda: self._reader.heard_ms, self._reader.poll())

    async def _poll(self) -> None:
        if self._may_stream() and self._trying is None:
            self._trying = asyncio.create_task(self._try_stream())
        failed, self._poll_failed = self._poll_failed, True
        await self._ask()
        self._poll_failed = False
        if failed:
            # It was not only the streams that failed: with the one the other may be well again.
            self._stream.try_soon()
        self._note_good()

    async def _try_stream(self) -> None:
        """Follow a stream beside reading once a second, which says what is the matter with the peer."""
        try:
            await self._stream.follow(SILENT_MS, lambda: self._own)
        except (PeerRefused, PeerTrouble, TimeoutError, Misread) as error:
            self._notes.read_ended(getattr(error, "reason", SourceReason.TIMEOUT))
        except Exception as error:  # noqa: BLE001
            # As above.
            self._told.surprise(self._address, error)
        finally:
            self._trying = None

    def _on_batch(self, first: bool, all_told: bool) -> None:
        if first:
            self._note_good()
        elif all_told:
            self._wholes.look()
