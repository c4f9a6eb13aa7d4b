"""How long a message was on its way, between two clocks that have nothing in common.

The difference between arrival and sending is the difference of the clocks and the delay. The smallest that was seen on
a connection is taken for a delay of nothing; whatever exceeds it is delay, and is taken off what the message says
remains. So a message that was held back does not lengthen a lease.
"""

DRIFT_DIVISOR = 1000
"""Two clocks may drift apart by this part of the time gone by: quartz, and a clock that is being slewed."""


class DelayEstimator:
    """The delays on one connection; a new one begins anew, as a machine may have slept in between."""

    def __init__(self) -> None:
        self._smallest_ms: int | None = None
        self._seen_ms = 0

    def to_local_ms(self, sent_ms: int, arrived_ms: int) -> int:
        """When, on this clock, a message was sent that says ``sent_ms`` and arrived at ``arrived_ms``."""
        apart_ms = arrived_ms - sent_ms
        drift_ms = (arrived_ms - self._seen_ms) // DRIFT_DIVISOR
        if self._smallest_ms is not None:
            apart_ms = min(apart_ms, self._smallest_ms + drift_ms)
        if self._smallest_ms is None or apart_ms < self._smallest_ms or drift_ms:
            self._smallest_ms, self._seen_ms = apart_ms, arrived_ms
        return sent_ms + apart_ms
