"""The table's clock: the ``Date`` of its answers, carried on by this machine's monotonic clock.

All instances write ends of leases by this one clock, so their own wall clocks do not matter. A ``Date`` has whole
seconds, so the clock is set anew only when it is off by more than that.
"""

from email.utils import parsedate_to_datetime

SET_BEYOND_MS = 1_000


def parse_date(date: str | None) -> float | None:
    """Seconds since 1970 of a ``Date`` header; ``None`` where it is absent or no date."""
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


class ServerClock:
    """Wall-clock milliseconds by the table; by this machine where no answer bore a date."""

    def __init__(self) -> None:
        self._offset_ms: int | None = None

    def observe(self, date: str | None, monotonic_ms: int) -> None:
        """An answer bore ``date``."""
        date_s = parse_date(date)
        if date_s is None:
            return
        # Half a second more, because a date has whole seconds.
        offset_ms = int(date_s * 1000) + 500 - monotonic_ms
        if self._offset_ms is None or abs(offset_ms - self._offset_ms) > SET_BEYOND_MS:
            self._offset_ms = offset_ms

    def now_ms(self, monotonic_ms: int, wall_ms: int) -> int:
        """The time by the table."""
        return wall_ms if self._offset_ms is None else monotonic_ms + self._offset_ms

    def skew_ms(self, monotonic_ms: int, wall_ms: int) -> int:
        """How far this machine's wall clock is ahead of the table's; negative where it is behind."""
        return wall_ms - self.now_ms(monotonic_ms, wall_ms)
