"""Which of many alike events are told: anyone could fill a log with what anyone can make happen.

Pure: the time is an argument, any number of milliseconds that only grows.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")


class LogThrottle(Generic[K]):
    """Tells at most one event of each key in ``interval_ms``, and how many were left out.

    At most ``keys`` keys are remembered. While so many are busy, all events of further keys count as those of one key,
    so that nobody with many addresses gets more than ``keys`` + 1 lines in an interval.
    """

    def __init__(self, *, interval_ms: int = 1_000, keys: int = 100) -> None:
        self._interval_ms = interval_ms
        self._keys = keys
        self._busy: OrderedDict[K | None, _Window] = OrderedDict()  # ordered by when they were told last
        self._lost = 0

    def __len__(self) -> int:
        """How many keys are remembered. The key of all the others is one of them."""
        return len(self._busy)

    def tell(self, key: K, now_ms: int) -> int | None:
        """Something happened. Returns ``None`` where it is left out, else how many were since the last that was told.

        With the first of a key this is 0. Events of keys that were forgotten meanwhile count with the next one told.
        """
        held: K | None = key
        told = self._busy.get(key)
        if told is None:
            held = self._room_for(key, now_ms)
            told = self._busy.get(held)
        if told is None:
            self._busy[held] = _Window(now_ms)
            return self._with_lost(0)
        if now_ms - told.at_ms < self._interval_ms:
            told.left_out += 1
            return None
        left_out, told.at_ms, told.left_out = told.left_out, now_ms, 0
        self._busy.move_to_end(held)
        return self._with_lost(left_out)

    def left_out(self, now_ms: int) -> list[tuple[K | None, int]]:
        """The keys that went quiet with events left out, and how many; ``None`` for all those of further keys.

        To be called now and then, every second or so: each of these is a line too. Forgets the quiet ones.
        """
        found: list[tuple[K | None, int]] = []
        while self._busy:
            key, told = next(iter(self._busy.items()))
            # A key that is still busy tells the number itself, with its next event.
            if now_ms - told.at_ms < 2 * self._interval_ms:
                break
            del self._busy[key]
            if told.left_out:
                found.append((key, told.left_out))
        for key, _ in found:
            self._busy[key] = _Window(now_ms)
        if self._lost and None not in self._busy:
            found.append((None, self._with_lost(0)))
            self._busy[None] = _Window(now_ms)
        return found

    def _room_for(self, key: K, now_ms: int) -> K | None:
        """The key that the events of ``key`` count under."""
        if len(self._busy) - (None in self._busy) < self._keys:
            return key
        oldest = next(each for each in self._busy if each is not None)
        if now_ms - self._busy[oldest].at_ms < self._interval_ms:
            return None
        self._lost += self._busy.pop(oldest).left_out
        return key

    def _with_lost(self, left_out: int) -> int:
        left_out, self._lost = left_out + self._lost, 0
        return left_out


class _Window:
    __slots__ = ("at_ms", "left_out")

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.left_out = 0
