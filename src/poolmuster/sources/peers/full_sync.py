"""When to ask a peer for its whole list: each once at the start, and later only where it makes this list complete."""

import asyncio

import msgspec

from poolmuster.model.source import SourceReason
from poolmuster.ports.clock import Clock
from poolmuster.sources.peers.errors import PeerRefused, PeerTrouble
from poolmuster.sources.peers.instrumentation import PeerInstrumentation, PeerLog
from poolmuster.sources.peers.node import Node
from poolmuster.sources.peers.reader import PeerReader
from poolmuster.sources.peers.timeouts import idle_timeout

SILENT_MS = 3_000
"""How long a peer that is asked something, or follows a stream, may be silent."""

ANSWER_LIMIT_MS = 30_000
"""What an answer may take in all: twenty thousand pools are two seconds of work on a machine that is not busy."""

ASK_AGAIN_MS = 1_000
BOOTS_LIMIT = 1_000


class SyncState(msgspec.Struct):
    """How it stands with the whole list of one peer. ``vouched``: it would have made this list complete."""

    at_ms: int | None = None
    trusted: bool = False
    task: "asyncio.Task[None] | None" = None


class FullSync:
    """Asks the peers whose readers were added."""

    def __init__(self, node: Node, clock: Clock, notes: PeerInstrumentation, told: PeerLog) -> None:
        self._node = node
        self._clock = clock
        self._notes = notes
        self._told = told
        self._asked: dict[PeerReader, SyncState] = {}
        self._synced: set[str] = set()

    def add(self, reader: PeerReader) -> None:
        """From here on ``reader``'s peer may be asked."""
        self._asked[reader] = SyncState()

    async def remove(self, reader: PeerReader) -> None:
        """Its peer is not asked any more."""
        task = self._asked.pop(reader).task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def start_due(self) -> None:
        """Something was heard, or found out: ask whom it is worth asking now."""
        now_ms = self._clock.monotonic_ms()
        if self._node.membership.needs_full_sync(now_ms):
            for reader, asked in self._asked.items():
                self._start_if_due(reader, asked, now_ms)

    def _start_if_due(self, reader: PeerReader, asked: SyncState, now_ms: int) -> None:
        if asked.task is not None or reader.summary is None or reader.boot_id in (None, self._node.boot_id):
            return
        vouches = self._node.membership.can_trust(*reader.summary)
        wanted = vouches or (reader.boot_id not in self._synced and not self._node.membership.is_warm(now_ms))
        due = asked.at_ms is None or now_ms - asked.at_ms >= ASK_AGAIN_MS or (vouches and not asked.trusted)
        if wanted and due:
            asked.at_ms, asked.trusted = now_ms, vouches
            asked.task = asyncio.create_task(self._sync(reader, asked))

    async def _sync(self, reader: PeerReader, asked: SyncState) -> None:
        try:
            boot_id = await idle_timeout(
                self._clock, SILENT_MS, ANSWER_LIMIT_MS, lambda: reader.snapshot_received_ms, reader.full_sync()
            )
        except (PeerRefused, PeerTrouble, TimeoutError) as error:
            # The stream goes on, or says what is the matter, and the list is asked for again.
            self._notes.read_ended(getattr(error, "reason", SourceReason.TIMEOUT))
        except Exception as error:  # noqa: BLE001
            # Whatever a peer does to us, no instance ends for what another says.
            self._told.unexpected(reader.place.address, error)
        else:
            if len(self._synced) >= BOOTS_LIMIT:
                self._synced.clear()
            self._synced.add(boot_id)
        finally:
            asked.task = None
