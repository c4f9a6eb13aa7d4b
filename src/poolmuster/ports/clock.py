"""Clocks, as ports: the layers above ask these and nothing else for the time."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two clocks of one machine, in whole milliseconds, and a way to wait on the first."""

    def monotonic_ms(self) -> int:
        """Time that never steps. Leases, timeouts and ages are judged by this one alone."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people and for the wire. It may step at any time, either way."""
        ...

    async def sleep_ms(self, duration_ms: float) -> None:
        """Wait for ``duration_ms`` of monotonic time; at least one turn of the event loop."""
        ...


class LeaseClock(Protocol):
    """The monotonic clock less the pauses of this process (rule L5).

    One timer ticks it several times a second. Where two ticks lie over a second apart the process was stopped, no
    renewal could be received, and the gap is a pause. ``credit_ms`` is the length of all pauses so far, ``ticked_ms``
    the monotonic time of the last tick.
    """

    credit_ms: int
    ticked_ms: int

    def notice_pause(self) -> int:
        """The monotonic time, after a pause that no tick has noticed yet was announced.

        Whatever records an event calls this first: an event after a pause must not count before its credit.
        """
        ...

    def subscribe(self, on_pause: Callable[[int, int], None]) -> None:
        """Call ``on_pause(ended_ms, length_ms)`` for each pause, in the order of subscription."""
        ...
