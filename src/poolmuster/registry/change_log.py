"""The history: the numbered changes of this boot, as far back as its bounds allow.

A watcher's place in it is a number. It can go on from there as long as every later change is still held.
"""

from collections import deque
from itertools import islice

from poolmuster.model.change import Change
from poolmuster.model.key import PoolKey

OVERHEAD_BYTES = 256
"""What one change costs beside the bodies it keeps alive."""


def change_bytes(change: Change) -> int:
    """What keeping ``change`` costs: a body that it replaced is kept alive by it alone."""
    return OVERHEAD_BYTES + (change.before.size_bytes if change.before is not None else 0)


class ChangeLog:
    """Changes in order, the latest ``limit_changes`` of at most ``limit_bytes`` together."""

    def __init__(self, limit_changes: int, limit_bytes: int, now_ms: int) -> None:
        self._changes: deque[Change] = deque()
        self._limit_changes = limit_changes
        self._limit_bytes = limit_bytes
        self.number = 0
        self.size_bytes = 0
        self.known_since_ms = now_ms

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def first_resumable(self) -> int:
        """The earliest number from which one can go on."""
        return self.number - len(self._changes)

    def append(self, change: Change) -> None:
        """Add the next change, whose number is one above the latest, and forget what no longer fits."""
        self._changes.append(change)
        self.number = change.number
        self.size_bytes += change_bytes(change)
        while len(self._changes) > self._limit_changes or self.size_bytes > self._limit_bytes:
            oldest = self._changes.popleft()
            self.size_bytes -= change_bytes(oldest)
            self.known_since_ms = oldest.monotonic_ms

    def since(self, number: int, at_most: int | None = None) -> list[Change] | None:
        """The changes after ``number``, oldest first, at most so many; ``None`` where some are forgotten."""
        missing = self.number - number
        if number < self.first_resumable or missing < 0:
            return None
        if missing <= 64:
            count = missing if at_most is None else min(missing, at_most)
            return [self._changes[index - missing] for index in range(count)]
        start = len(self._changes) - missing
        stop = None if at_most is None else start + at_most
        return list(islice(self._changes, start, stop))

    def latest_of(self, key: PoolKey, at_most: int) -> list[Change]:
        """The latest changes of one pool, at most so many, oldest first."""
        found = (change for change in reversed(self._changes) if change.pool is not None and change.pool.key == key)
        return list(islice(found, at_most))[::-1]

    def newer_than(self, clock_ms: int) -> list[Change]:
        """The changes that happened after ``clock_ms`` of the monotonic clock, oldest first."""
        found = []
        for change in reversed(self._changes):
            if change.monotonic_ms <= clock_ms:
                break
            found.append(change)
        return found[::-1]
