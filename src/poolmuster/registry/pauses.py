"""Noticing that this process was stopped: by a signal, a debugger, a laptop's lid, a starved machine (rule L5).

A timer ticks every quarter of a second. Where two ticks lie more than a second apart, nothing could have been heard
in between, so the whole gap is credited to every lease.
"""

TICK_MS = 250
PAUSE_MS = 1000


class PauseDetector:
    """Gaps between ticks, in monotonic milliseconds."""

    def __init__(self, now_ms: int) -> None:
        self._last_tick_ms = now_ms

    def tick(self, now_ms: int) -> int:
        """The timer ticked. Returns the credit: the gap since the last tick where it was a pause, else 0."""
        gap_ms = now_ms - self._last_tick_ms
        self._last_tick_ms = max(now_ms, self._last_tick_ms)
        return gap_ms if gap_ms > PAUSE_MS else 0

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the timer is so late that there was a pause which nobody has been credited for."""
        return now_ms - self._last_tick_ms > PAUSE_MS

    def check(self, now_ms: int) -> int:
        """Something other than the timer runs. Returns the credit, which then the next tick does not give again.

        After a pause a request may be handled before the timer: it must not see leases that seem to have ended, nor
        a list that calls itself complete.
        """
        return self.tick(now_ms) if self.is_overdue(now_ms) else 0
