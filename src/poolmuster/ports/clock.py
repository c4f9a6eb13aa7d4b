"""The clock, as a port: everything above the core asks this and nothing else for the time."""

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
