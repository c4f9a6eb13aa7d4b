"""What the peers' store has to tell beside its readings: to metrics, and to the log when it changes."""

from collections import Counter
from collections.abc import Callable

import structlog

from poolmuster.model.source import SourceReason

GOOD = "good"
LIST, BATCH = "list", "batch"
IN, OUT = "in", "out"

log = structlog.get_logger("poolmuster.peers")


class PeerInstrumentation:
    """What metrics want to know. This one takes no notice."""

    def message(self, direction: str, kind: str, size_bytes: int) -> None:
        """A message was read (`IN`) or handed over to be sent (`OUT`); ``kind`` is `LIST` or `BATCH`."""

    def read_ended(self, outcome: str) -> None:
        """A read of a peer has ended: ``good``, ``refused``, or the reason why it failed."""

    def resolved(self, good: bool) -> None:
        """A name was resolved, or was not."""

    def renewal_came(self, after_ms: int) -> None:
        """A registration that a peer took was heard of so long after that."""

    def skipped(self, count: int) -> None:
        """So many entries of a message were not valid, or too many."""

    def watch_peers(self, states: Callable[[], Counter[str]]) -> None:
        """``states`` tells how many addresses that count are in each state now."""

    def followers(self, count: int) -> None:
        """So many streams are open to peers now."""


class PeerLog:
    """Says in the log what changed, and nothing twice."""

    def __init__(self) -> None:
        self._peers: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def peer(self, address: str, outcome: str, detail: str = "") -> None:
        """How the last read of ``address`` went."""
        before = self._peers.get(address)
        if before == outcome:
            return
        self._peers[address] = outcome
        if outcome == GOOD:
            log.info("A peer is read", address=address, after=before)
        else:
            log.warning("A peer is not read", address=address, reason=outcome, detail=detail)

    def forget_peer(self, address: str) -> None:
        """The address is no longer behind a name."""
        if self._peers.pop(address, None) is not None:
            log.info("A peer has left the name", address=address)

    def unexpected(self, address: str, error: Exception) -> None:
        """Reading failed in a way that nobody thought of. The log gets all of it, once."""
        if self._peers.get(address) != SourceReason.INTERNAL:
            log.error("Reading a peer failed unexpectedly", address=address, exc_info=error)

    def name(self, name: str, trouble: str | None) -> None:
        """How the last resolution of ``name`` went; ``None`` for well."""
        before = self._names.get(name)
        if trouble is not None and before is None:
            log.warning("The peers' name cannot be resolved", name=name, why=trouble)
            self._names[name] = trouble
        elif trouble is None and before is not None:
            log.info("The peers' name is resolved again", name=name)
            del self._names[name]
