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

from poolmuster.model.source import SourceReason
from poolmuster.ports.clock import Clock
from poolmuster.replication.decoder import OutOfSync
from poolmuster.sources.peers.errors import PeerRefused, PeerTrouble
from poolmuster.sources.peers.full_sync import ANSWER_LIMIT_MS, SILENT_MS, FullSync
from poolmuster.sources.peers.instrumentation import GOOD, PeerInstrumentation, PeerLog
from poolmuster.sources.peers.node import Node
from poolmuster.sources.peers.reader import PeerReader
from poolmuster.sources.peers.stream import PeerStream
from poolmuster.sources.peers.timeouts import idle_timeout

FIRST_MESSAGE_MS = 1_000
"""What a stream gets for its first word before it is read in the other way."""

RETRY_MS = 250
POLL_MS = 1_000
REFUSED = "refused"
PERMANENT = (SourceReason.FORBIDDEN, SourceReason.BAD_ANSWER)
"""What somebody has to mend: nothing is gained by asking again at once."""

UNEXPECTED = "The log of this instance knows more."


class PeerConnection:
    """Reads one address for as long as it runs."""

    def __init__(
        self,
        reader: PeerReader,
        node: Node,
        clock: Clock,
        notes: PeerInstrumentation,
        told: PeerLog,
        wholes: FullSync,
    ) -> None:
        self._reader = reader
        self._address = reader.place.address
        self._node = node
        self._clock = clock
        self._instrumentation = notes
        self._peer_log = told
        self._full_sync = wholes
        self._stream = PeerStream(reader, clock, self._on_batch)
        self._trying: asyncio.Task[None] | None = None
        self._poll_failed = False

    @property
    def _own(self) -> bool:
        account = self._node.membership.member(self._address)
        return account is not None and account.own

    async def run(self) -> None:
        """Read until cancelled."""
        self._full_sync.add(self._reader)
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
            await self._full_sync.remove(self._reader)

    async def _read_once(self) -> bool:
        """Read once, in the way that is due. Returns whether to go on in a second, rather than at once."""
        try:
            if self._own:
                await self._ask()
                self._full_sync.start_due()
            elif self._trying is not None and self._stream.is_receiving:
                await asyncio.wait([self._trying])
                return False
            elif self._may_stream() and self._stream.trusted:
                await self._stream.follow(FIRST_MESSAGE_MS, lambda: self._own)
                return False
            else:
                await self._poll()
        except PeerRefused:
            self._node.membership.refused(self._address, self._node.notice_pause())
            self._node.changed()
            self._record(REFUSED, "Nobody listens there.")
        except PeerTrouble as trouble:
            self._fail(trouble.reason, trouble.detail)
            return trouble.reason in PERMANENT
        except TimeoutError:
            self._fail(SourceReason.TIMEOUT, "It does not answer.")
        except OutOfSync:
            self._record(SourceReason.BAD_ANSWER, "What it says does not follow from what it said before.")
        except Exception as error:  # noqa: BLE001
            # Whatever a peer does to us, the next answer may be good: no instance ends for what another says.
            self._peer_log.unexpected(self._address, error)
            self._fail(SourceReason.INTERNAL, f"{type(error).__name__}. {UNEXPECTED}")
            return True
        else:
            return not self._stream.is_suspect
        return False

    def _may_stream(self) -> bool:
        account = self._node.membership.member(self._address)
        status = None if account is None else account.source_status(self._clock.monotonic_ms())
        # Behind a load balancer only new connections show who is there.
        return self._stream.due and (status is None or status.reason is not SourceReason.LOAD_BALANCER)

    def _record(self, outcome: str, detail: str = "") -> None:
        self._instrumentation.read_ended(outcome)
        self._peer_log.peer(self._address, outcome, detail)

    def _record_good(self) -> None:
        self._record(GOOD)
        self._full_sync.start_due()

    def _fail(self, reason: SourceReason, detail: str) -> None:
        self._node.notice_pause()
        self._node.membership.failed(self._address, reason, detail)
        self._node.changed()
        self._record(reason, detail)

    async def _ask(self) -> None:
        self._reader.received_ms = None
        await idle_timeout(
            self._clock, SILENT_MS, ANSWER_LIMIT_MS, lambda: self._reader.received_ms, self._reader.poll()
        )

    async def _poll(self) -> None:
        if self._may_stream() and self._trying is None:
            self._trying = asyncio.create_task(self._try_stream())
        failed, self._poll_failed = self._poll_failed, True
        await self._ask()
        self._poll_failed = False
        if failed:
            # It was not only the streams that failed: with the one the other may be well again.
            self._stream.try_soon()
        self._record_good()

    async def _try_stream(self) -> None:
        """Follow a stream beside reading once a second, which says what is the matter with the peer."""
        try:
            await self._stream.follow(SILENT_MS, lambda: self._own)
        except (PeerRefused, PeerTrouble, TimeoutError, OutOfSync) as error:
            self._instrumentation.read_ended(getattr(error, "reason", SourceReason.TIMEOUT))
        except Exception as error:  # noqa: BLE001
            # As above.
            self._peer_log.unexpected(self._address, error)
        finally:
            self._trying = None

    def _on_batch(self, first: bool, all_told: bool) -> None:
        if first:
            self._record_good()
        elif all_told:
            self._full_sync.start_due()
