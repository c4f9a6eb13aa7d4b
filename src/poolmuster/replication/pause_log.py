"""Lease time: the monotonic clock less the time in which this process was stopped (rule L5).

The roster needs the credit so far and nothing else. What peers say is about moments in the past, some of them within
a pause, so here the pauses themselves are kept.
"""

from collections import deque

PAUSES_LIMIT = 64
"""How many pauses are remembered; what was renewed before the oldest of them has long ended, or was renewed since."""


class PauseLog:
    """The pauses of this process."""

    def __init__(self) -> None:
        self._pauses: deque[tuple[int, int]] = deque(maxlen=PAUSES_LIMIT)

    def record(self, ended_ms: int, length_ms: int) -> None:
        """The process was stopped for ``length_ms`` until ``ended_ms``. Pauses come in order and do not overlap."""
        if length_ms > 0:
            self._pauses.append((ended_ms - length_ms, ended_ms))

    def elapsed_ms(self, from_ms: int, to_ms: int) -> int:
        """How much lease time passed between two moments of the monotonic clock."""
        paused_ms = sum(max(0, min(ended_ms, to_ms) - max(began_ms, from_ms)) for began_ms, ended_ms in self._pauses)
        return to_ms - from_ms - paused_ms
