"""What a polled store reports beside its updates: to metrics, and to the log when it changes."""

import structlog

from poolmuster.model.source import SourceReason
from poolmuster.sources.polled.table import StoreError

GOOD = "good"
REFUSED = "refused"
CANCELLED = "cancelled"
LOGGED_ITEMS_LIMIT = 20
"""How many invalid items of one scan are named in the log: thousands would hold up everything."""

log = structlog.get_logger("poolmuster.table")


class TableInstrumentation:
    """Hooks for metrics. These do nothing."""

    def read(self, outcome: str, duration_ms: int) -> None:
        """A read of the whole table has ended: `GOOD`, or the reason why not."""

    def retried(self, reason: str) -> None:
        """A page of a read was asked for once more."""

    def extra_read(self) -> None:
        """A read began early, after a write of this instance."""

    def wrote(self, outcome: str, duration_ms: int) -> None:
        """A put has ended: `GOOD`, `REFUSED` by its condition, `CANCELLED`, or the reason why not."""

    def consumed(self, kind: str, units: float) -> None:
        """What a call cost by its answer; ``kind`` is ``read`` or ``write``."""

    def skipped(self, count: int) -> None:
        """``count`` items of the last good read could not be parsed."""

    def clock_ahead(self, ahead_ms: int) -> None:
        """How far this machine's clock is ahead of the table's; negative where it is behind."""


class TransitionLog:
    """Logs what changed, each change once."""

    def __init__(self, slack_ms: int) -> None:
        self._slack_ms = slack_ms
        self._reason: str | None = None
        self._invalid: set[str] = set()
        self._is_off = False

    def read_ended(self, error: StoreError | None) -> None:
        """The outcome of the last read; ``None`` where it was good."""
        before, self._reason = self._reason, None if error is None else error.reason
        if error is not None and error.reason != before:
            log.warning("The table cannot be read", reason=error.reason, detail=error.detail)
        elif error is None and before is not None:
            log.info("The table is read again", after=before)

    def unexpected(self, error: Exception, location: str) -> StoreError:
        """A read failed by an error that is none of the table's. The log has its traceback, once."""
        if self._reason != SourceReason.INTERNAL:
            log.error("Reading the table failed unexpectedly", exc_info=error)
        name = type(error).__name__
        return StoreError(SourceReason.INTERNAL, f"{location} could not be read: {name}; the log has more")

    def invalid_items(self, reasons: dict[str, str]) -> None:
        """The items of the last good read that could not be parsed, each with its reason."""
        new = sorted(reasons.keys() - self._invalid)
        for name in new[:LOGGED_ITEMS_LIMIT]:
            log.warning("An item of the table is skipped", item=name[:200], why=reasons[name])
        if len(new) > LOGGED_ITEMS_LIMIT:
            log.warning("More items of the table are skipped", count=len(new) - LOGGED_ITEMS_LIMIT)
        self._invalid = set(reasons)

    def clock_ahead(self, ahead_ms: int) -> None:
        """How far this machine's clock is ahead of the table's, or behind."""
        was_off, self._is_off = self._is_off, abs(ahead_ms) > self._slack_ms
        if self._is_off and not was_off:
            log.warning(
                "This machine's clock is off from the table's by more than the slack",
                ahead_s=round(ahead_ms / 1000, 1),
                slack_s=self._slack_ms / 1000,
            )
        elif was_off and not self._is_off:
            log.info("This machine's clock agrees with the table's again")
