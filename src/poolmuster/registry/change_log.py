"""The change log: the numbered changes of this boot, as far back as its bounds allow.

A watcher's position in it is a number. It can resume from there as long as every later change is still held.
"""

from collections import Counter, deque
from itertools import islice
from typing import Any, Generic

from poolmuster.model.change import Change, ChangeKind, RemovalCause
from poolmuster.registry.updates import R

OVERHEAD_BYTES = 256
"""What one change costs beside the bodies it keeps alive."""


def change_bytes(change: Change[R]) -> int:
    """What keeping ``change`` costs: it alone keeps the body that it replaced."""
    return OVERHEAD_BYTES + (change.before.size_bytes if change.before is not None else 0)


class ChangeLog(Generic[R]):
    """Changes in order, the latest ``limit_changes`` of at most ``limit_bytes`` together."""

    def __init__(self, limit_changes: int, limit_bytes: int, now_ms: int) -> None:
        self._changes: deque[Change[R]] = deque()
        self._limit_changes = limit_changes
        self._limit_bytes = limit_bytes
        self.number = 0
        self.size_bytes = 0
        self.known_since_ms = now_ms
        self.counts: Counter[tuple[ChangeKind, RemovalCause | None]] = Counter()
        """All changes of this boot by kind and cause."""

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def first_resumable(self) -> int:
        """The earliest number from which a watcher can resume."""
        return self.number - len(self._changes)

    def append(self, change: Change[R]) -> None:
        """Add the next change, whose number is one above the latest, and drop what no longer fits."""
        self._changes.append(change)
        self.number = change.number
        self.counts[change.kind, None if change.removal is None else change.removal.cause] += 1
        self.size_bytes += change_bytes(change)
        while len(self._changes) > self._limit_changes or self.size_bytes > self._limit_bytes:
            oldest = self._changes.popleft()
            self.size_bytes -= change_bytes(oldest)
            self.known_since_ms = oldest.monotonic_ms

    def since(self, number: int, at_most: int | None = None) -> list[Change[R]] | None:
        """The changes after ``number``, oldest first, at most so many; ``None`` where some are gone."""
        missing = self.number - number
        if number < self.first_resumable or missing < 0:
            return None
        if missing <= 64:
            count = missing if at_most is None else min(missing, at_most)
            return [self._changes[index - missing] for index in range(count)]
        start = len(self._changes) - missing
        stop = None if at_most is None else start + at_most
        return list(islice(self._changes, start, stop))

    def latest_of(self, key: Any, at_most: int) -> list[Change[R]]:
        """The latest changes of one key, at most so many, oldest first."""
        found = (change for change in reversed(self._changes) if change.record is not None and change.record.key == key)
        return list(islice(found, at_most))[::-1]

    def newer_than(self, clock_ms: int) -> list[Change[R]]:
        """The changes that happened after ``clock_ms`` of the monotonic clock, oldest first."""
        found: list[Change[R]] = []
        for change in reversed(self._changes):
            if change.monotonic_ms <= clock_ms:
                break
            found.append(change)
        return found[::-1]
