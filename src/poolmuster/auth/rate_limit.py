"""How much time may go into signatures that turn out wrong.

Everything else about a token is checked first and costs next to nothing. A signature costs 20 to 500 us, and whoever
knows an account's name can send wrong ones without end. So what wrong ones cost is bounded, in the event loop's time;
right ones cost nothing of the bound, however many come at once, as after a restart.

There are two allowances, so that a flood does not keep out those who were here before: one for pods of which a token
was good before, as when theirs are renewed, and one for everybody else. A pod is known by its UID, which those who
flood from outside of its cluster cannot know.
"""

from collections import OrderedDict
from collections.abc import Hashable

from poolmuster.ports.clock import Clock

PER_S_US = 10_000
"""One percent of the event loop."""

BURST_US = 20_000
FAMILIAR_LIMIT = 20_000
REFUSED_LIMIT = 10_000


class TokenBucket:
    """An amount that is spent, and grows back evenly up to ``burst_us``. The last that is granted may overdraw it."""

    def __init__(self, clock: Clock, per_s_us: int, burst_us: int) -> None:
        self._clock = clock
        self._per_s_us = per_s_us
        self._burst_us = burst_us
        self._left_us = float(burst_us)
        self._counted_ms = clock.monotonic_ms()

    def is_left(self) -> bool:
        """Whether there is anything left."""
        now_ms = self._clock.monotonic_ms()
        grown_us = (now_ms - self._counted_ms) * self._per_s_us / 1000
        self._left_us = min(self._burst_us, self._left_us + grown_us)
        self._counted_ms = now_ms
        return self._left_us > 0

    def spend(self, amount_us: int) -> None:
        """Take this much away."""
        self._left_us -= amount_us


class VerificationBudget:
    """The two allowances, and who is familiar: whoever had a good token among the last `FAMILIAR_LIMIT`."""

    def __init__(self, clock: Clock, per_s_us: int = PER_S_US, burst_us: int = BURST_US) -> None:
        self._of_strangers = TokenBucket(clock, per_s_us, burst_us)
        self._of_familiar = TokenBucket(clock, per_s_us, burst_us)
        self._familiar: OrderedDict[Hashable, None] = OrderedDict()

    def allows(self, who: Hashable) -> bool:
        """Whether a signature may be verified for ``who`` now."""
        return self._allowance(who).is_left()

    def was_wrong(self, who: Hashable, cost_us: int) -> None:
        """The signature was wrong, and finding out took ``cost_us``."""
        self._allowance(who).spend(cost_us)

    def was_right(self, who: Hashable) -> None:
        """The signature was right."""
        self._familiar[who] = None
        self._familiar.move_to_end(who)
        if len(self._familiar) > FAMILIAR_LIMIT:
            self._familiar.popitem(last=False)

    def _allowance(self, who: Hashable) -> TokenBucket:
        return self._of_familiar if who in self._familiar else self._of_strangers


Mark = tuple[str, int]
"""An issuer, and the generation of its keys."""


class RejectedTokenCache:
    """Digests of tokens whose signature was wrong, each with the ``mark`` of the keys that it was wrong by."""

    def __init__(self, limit: int = REFUSED_LIMIT) -> None:
        self._limit = limit
        self._marks: OrderedDict[bytes, Mark] = OrderedDict()

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, digest: bytes, mark: Mark) -> None:
        """Remember one. Beyond the limit the oldest is forgotten."""
        self._marks[digest] = mark
        if len(self._marks) > self._limit:
            self._marks.popitem(last=False)

    def mark(self, digest: bytes) -> Mark | None:
        """The mark that it was added with, or ``None``."""
        return self._marks.get(digest)
