"""What is known of an event loop's turns."""

import msgspec

LONG_S = 0.02


class Turns(msgspec.Struct):
    """The longest turn by the clock, and by the time the thread really ran, in seconds; and how many are long."""

    longest_s: float = 0.0
    longest_running_s: float = 0.0
    long: int = 0
    count: int = 0

    def take(self, took_s: float, running_s: float) -> None:
        """One turn."""
        self.count += 1
        self.longest_s = max(self.longest_s, took_s)
        self.longest_running_s = max(self.longest_running_s, running_s)
        self.long += running_s > LONG_S
