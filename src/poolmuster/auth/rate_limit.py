"""Bounds the time that is spent on wrong signatures.

All other checks of a token come first and cost next to nothing. A signature costs 20 to 500 us, and a client that knows
an account's name can send wrong ones without end. So their cost is bounded, as a share of the event loop's time. Right
signatures are free, however many come at once, as after a restart.

Pods whose token was right before have a bucket of their own, so that a flood does not keep them from renewing it. A pod
is known by its UID, which is not known outside of its cluster.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

from poolmuster.ports.clock import Clock

RATE_US_PER_S = 10_000
"""One percent of the event loop."""

BURST_US = 20_000
KNOWN_PODS_LIMIT = 20_000
REJECTED_LIMIT = 10_000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TokenBucket:
    """An amount that is spent, and refills evenly up to ``burst_us``. The last spend may overdraw it."""

    def __init__(self, clock: Clock, rate_us_per_s: int, burst_us: int) -> None:
        self._clock = clock
        self._rate_us_per_s = rate_us_per_s
        self._burst_us = burst_us
        self._left_us = float(burst_us)
        self._filled_ms = clock.monotonic_ms()

    def refill(self) -> bool:
        """Refill it as of now. Returns whether anything is left."""
        now_ms = self._clock.monotonic_ms()
        refilled_us = (now_ms - self._filled_ms) * self._rate_us_per_s / 1000
        self._left_us = min(self._burst_us, self._left_us + refilled_us)
        self._filled_ms = now_ms
        return self._left_us > 0

    def spend(self, amount_us: int) -> None:
        """Take this much away."""
        self._left_us -= amount_us


class LatestEntries(OrderedDict[K, V]):
    """The ``limit`` entries that were set last."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)


class VerificationBudget:
    """A bucket for known pods, whose signature was right before, and one for all others."""

    def __init__(self, clock: Clock, rate_us_per_s: int = RATE_US_PER_S, burst_us: int = BURST_US) -> None:
        self._others = TokenBucket(clock, rate_us_per_s, burst_us)
        self._known = TokenBucket(clock, rate_us_per_s, burst_us)
        self._known_pods: LatestEntries[Hashable, None] = LatestEntries(KNOWN_PODS_LIMIT)

    def allows(self, pod: Hashable) -> bool:
        """Whether a signature may be verified for ``pod`` now."""
        return self._bucket(pod).refill()

    def record_wrong(self, pod: Hashable, cost_us: int) -> None:
        """A signature for ``pod`` was wrong; its verification took ``cost_us``."""
        self._bucket(pod).spend(cost_us)

    def record_right(self, pod: Hashable) -> None:
        """A signature for ``pod`` was right."""
        self._known_pods[pod] = None

    def _bucket(self, pod: Hashable) -> TokenBucket:
        return self._known if pod in self._known_pods else self._others
