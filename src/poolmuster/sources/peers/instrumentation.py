"""The metrics of the store with peers, and the log of its changes."""

from collections import Counter
from collections.abc import Callable

import structlog

from poolmuster.model.source import SourceReason

GOOD, REFUSED = "good", "refused"
DELTA, SNAPSHOT = "delta", "snapshot"
IN, OUT = "in", "out"

log = structlog.get_logger("poolmuster.peers")


class PeerInstrumentation:
    """What metrics count. This class counts nothing."""

    def message(self, direction: str, kind: str, size_bytes: int) -> None:
        """A message was received (`IN`) or made to be sent (`OUT`); ``kind`` is `DELTA` or `SNAPSHOT`."""

    def read_ended(self, outcome: str) -> None:
        """A poll ended, or a stream began or ended: `GOOD`, `REFUSED`, or the reason of the failure."""

    def resolved(self, good: bool) -> None:
        """A name was resolved, or was not."""

    def renewal_came(self, after_ms: int) -> None:
        """A renewal at a peer was applied here, so long after it was made."""

    def skipped(self, count: int) -> None:
        """Entries of a message were not valid, or too many."""

    def watch_peers(self, states: Callable[[], Counter[str]]) -> None:
        """``states`` returns the number of members in each state."""

    def subscribers(self, count: int) -> None:
        """The number of open streams to peers."""


class PeerLog:
    """Logs each change of a member or of a name once, and counts every read and every resolution."""

    def __init__(self, instrumentation: PeerInstrumentation) -> None:
        self._instrumentation = instrumentation
        self._outcomes: dict[str, str] = {}
        self._unresolved: set[str] = set()

    def read_ended(self, address: str, outcome: str, detail: str = "") -> None:
        """A read of ``address`` ended, or a stream of it began: see `PeerInstrumentation.read_ended`."""
        self._instrumentation.read_ended(outcome)
        before = self._outcomes.get(address)
        if before == outcome:
            return
        self._outcomes[address] = outcome
        if outcome == GOOD:
            log.info("peer reachable", address=address, after=before)
        else:
            log.warning("peer unreachable", address=address, reason=outcome, detail=detail)

    def removed(self, address: str) -> None:
        """``address`` is no member any more."""
        if self._outcomes.pop(address, None) is not None:
            log.info("peer removed", address=address)

    def unexpected(self, address: str, error: Exception) -> None:
        """A read failed by an error of this program. It is logged whole, once."""
        if self._outcomes.get(address) != SourceReason.INTERNAL:
            log.error("peer read failed unexpectedly", address=address, exc_info=error)

    def resolved(self, name: str, problem: str | None) -> None:
        """``name`` was resolved, or was not because of ``problem``."""
        self._instrumentation.resolved(problem is None)
        if problem is not None and name not in self._unresolved:
            self._unresolved.add(name)
            log.warning("peer name not resolved", name=name, problem=problem)
        elif problem is None and name in self._unresolved:
            self._unresolved.discard(name)
            log.info("peer name resolved", name=name)
