"""What the store has to tell beside its readings: to metrics, and to the log when it changes."""

from typing import TYPE_CHECKING

import structlog

from poolmuster.model.source import SourceReason
from poolmuster.sources.dynamodb.errors import StoreError

if TYPE_CHECKING:
    from poolmuster.sources.dynamodb.aws import TableLocation  # needs the extra, which these notes do not

GOOD = "good"
REFUSED = "refused"
CANCELLED = "cancelled"
LOGGED_ITEMS_LIMIT = 20
"""How many faulty items of one read are named in the log: thousands would hold up everything."""

log = structlog.get_logger("poolmuster.dynamodb")


class TableInstrumentation:
    """What metrics want to know. This one takes no notice."""

    def read(self, outcome: str, duration_ms: int) -> None:
        """A read of all pages has ended: `GOOD`, or the reason why not."""

    def retried(self, reason: str) -> None:
        """A page of a read was asked for once more."""

    def extra_read(self) -> None:
        """A read was begun before its time, after a write of our own."""

    def wrote(self, outcome: str, duration_ms: int) -> None:
        """A put has ended: `GOOD`, `REFUSED` by its condition, `CANCELLED`, or the reason why not."""

    def consumed(self, kind: str, units: float) -> None:
        """The table says what a call cost; ``kind`` is ``read`` or ``write``."""

    def skipped(self, count: int) -> None:
        """So many items of the last good read could not be parsed."""

    def clock_ahead(self, ahead_ms: int) -> None:
        """How far this machine's clock is ahead of the table's; negative where it is behind."""


class TransitionLog:
    """Says in the log what changed, and nothing twice."""

    def __init__(self, slack_ms: int) -> None:
        self._slack_ms = slack_ms
        self._reason: str | None = None
        self._faults: set[str] = set()
        self._clock_told = False

    def read_ended(self, trouble: StoreError | None) -> None:
        """How the last read went; ``None`` for well."""
        before, self._reason = self._reason, None if trouble is None else trouble.reason
        if trouble is not None and trouble.reason != before:
            log.warning("The table cannot be read", reason=trouble.reason, detail=trouble.detail)
        elif trouble is None and before is not None:
            log.info("The table is read again", after=before)

    def unexpected(self, error: Exception, place: "TableLocation") -> StoreError:
        """A read failed in a way that nobody thought of. The log gets all of it, once."""
        if self._reason != SourceReason.INTERNAL:
            log.error("Reading the table failed unexpectedly", exc_info=error)
        return StoreError(
            SourceReason.INTERNAL, f"{place} could not be read: {type(error).__name__}; the log knows more"
        )

    def faults(self, faults: dict[str, str]) -> None:
        """The items of the last good read that could not be parsed, each with why."""
        new = sorted(faults.keys() - self._faults)
        for name in new[:LOGGED_ITEMS_LIMIT]:
            log.warning("An item of the table is skipped", item=name[:200], why=faults[name])
        if len(new) > LOGGED_ITEMS_LIMIT:
            log.warning("More items of the table are skipped", count=len(new) - LOGGED_ITEMS_LIMIT)
        self._faults = set(faults)

    def clock_ahead(self, ahead_ms: int) -> None:
        """How far this machine's clock is ahead of the table's, or behind."""
        off = abs(ahead_ms) > self._slack_ms
        if off and not self._clock_told:
            log.warning(
                "This machine's clock is off from the table's by more than the slack",
                ahead_s=round(ahead_ms / 1000, 1),
                slack_s=self._slack_ms / 1000,
            )
        elif self._clock_told and not off:
            log.info("This machine's clock agrees with the table's again")
        self._clock_told = off
