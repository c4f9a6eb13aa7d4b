"""Decides how and when one address is read. Pure: it takes the time, and what is known of the address.

| at the address | read by |
| --- | --- |
| a peer | a stream, given up after three seconds without a message |
| a peer whose streams fail | polls, with a stream tried beside them, less and less often |
| a peer whose tried stream has delivered | that stream alone |
| several instances (`load_balancer`), or it is not clear whether one | polls, each by a new connection |
| this instance itself | polls, in case another takes the address |

| end of a read | next read |
| --- | --- |
| a good poll | one second after its start |
| a good poll while it is not clear whether one instance answers; the end of a stream | a quarter of a second later |
| a failure that may end at once: refused, no answer, a message lost | a quarter of a second later |
| a failure that needs repair: forbidden, no peer, an error of this program | one second after its start |

Beside each stream new connections ask now and then for the boot at the address (`IDENTIFY_MS`), as a stream shows only
one of several instances.

A snapshot is taken of each peer once after the start, and of a trusted peer, which makes this list complete, whenever
it is not. It is tried again after a second, or at once where the peer was not trusted at the last try.
"""

from enum import Enum, auto

IDENTIFY_MS = (250, 1_000, 5_000)
"""The waits before the requests for the boot at the address; the last one repeats."""

POLL_MS = 1_000
RETRY_MS = 250
SYNC_RETRY_MS = 1_000

SUSPECT_MS = 2_500
"""How long only new connections are made, one soon after the other, to see whether several instances answer."""

STEADY_MS = 5_000
"""A stream that lasted so long does not count as failed."""

STREAM_RETRY_MS = 1_000
STREAM_RETRY_LIMIT_MS = 10_000
"""The wait before the next stream doubles from the one to the other."""


class ReadMode(Enum):
    """How to read next."""

    STREAM = auto()
    POLL = auto()
    POLL_AND_TRY_STREAM = auto()
    AWAIT_STREAM = auto()


class ReadEnd(Enum):
    """How a read ended."""

    POLLED = auto()
    STREAM_ENDED = auto()
    FAILED = auto()
    NEEDS_REPAIR = auto()


class ReadSchedule:
    """The schedule of one address."""

    def __init__(self, now_ms: int) -> None:
        self._stream_failures = 0
        self._stream_due_ms = now_ms
        self._suspect_until_ms = now_ms
        self._poll_failed = False
        self._synced_ms: int | None = None
        self._synced_as_trusted = False

    def mode(self, now_ms: int, *, own: bool, load_balancer: bool, stream_delivers: bool) -> ReadMode:
        """How to read now."""
        if own:
            return ReadMode.POLL
        if stream_delivers:
            return ReadMode.AWAIT_STREAM
        if load_balancer or now_ms < self._stream_due_ms:
            return ReadMode.POLL
        return ReadMode.POLL_AND_TRY_STREAM if self._stream_failures else ReadMode.STREAM

    def next_read_ms(self, end: ReadEnd, started_ms: int, now_ms: int) -> int:
        """When to read next, after a read that began at ``started_ms``."""
        suspect = now_ms < self._suspect_until_ms
        if end is ReadEnd.NEEDS_REPAIR or (end is ReadEnd.POLLED and not suspect):
            return max(now_ms, started_ms + POLL_MS)
        return now_ms + RETRY_MS

    def poll_ended(self, now_ms: int, *, good: bool) -> None:
        """A poll ended. A good one after a failed one: not only streams failed, so one may be tried again at once."""
        if good and self._poll_failed:
            self._stream_due_ms = now_ms
        self._poll_failed = not good

    def stream_ended(self, started_ms: int, now_ms: int, *, delivered: bool, refused: bool) -> None:
        """A stream ended. Neither a refusal nor the end of a long stream speaks against streams."""
        if refused or (delivered and now_ms - started_ms >= STEADY_MS):
            self._stream_failures = 0
        else:
            self._stream_due_ms = now_ms + min(STREAM_RETRY_MS << self._stream_failures, STREAM_RETRY_LIMIT_MS)
            self._stream_failures = min(self._stream_failures + 1, 8)

    def suspect(self, now_ms: int) -> None:
        """Another boot than that of the stream answers at the address, or this instance itself."""
        self._stream_failures = max(1, self._stream_failures)
        self._stream_due_ms = self._suspect_until_ms = now_ms + SUSPECT_MS

    def is_sync_due(self, now_ms: int, *, trusted: bool) -> bool:
        """Whether to take the peer's snapshot now; ``trusted`` is whether it would make this list complete."""
        last_ms = self._synced_ms
        return last_ms is None or now_ms - last_ms >= SYNC_RETRY_MS or (trusted and not self._synced_as_trusted)

    def sync_started(self, now_ms: int, *, trusted: bool) -> None:
        """A full sync has begun."""
        self._synced_ms, self._synced_as_trusted = now_ms, trusted
