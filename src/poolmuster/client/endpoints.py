"""Which instance to try next, and when: a ring of URLs, each with its own exponential backoff. No clock of its own."""

import random

from poolmuster.client.settings import ClientSettings


class Endpoints:
    """The URLs of one service. After a failure the next one is tried at once, the failed one only after a while."""

    def __init__(self, settings: ClientSettings, chance: random.Random) -> None:
        self._urls = settings.urls
        self._first_ms = settings.backoff_first_ms
        self._limit_ms = settings.backoff_limit_ms
        self._chance = chance
        self._at = 0
        self._failures = [0] * len(self._urls)
        self._not_before_ms: list[float | None] = [None] * len(self._urls)

    @property
    def url(self) -> str:
        """The one in use, or to be tried first."""
        return self._urls[self._at]

    def choose(self, now_ms: int) -> float:
        """Settle on a URL (`url`): the first in the ring that may be tried. Returns how long to wait, in ms."""
        ring = [(self._at + step) % len(self._urls) for step in range(len(self._urls))]
        waits = {at: max(0.0, (self._not_before_ms[at] or now_ms) - now_ms) for at in ring}
        self._at = min(ring, key=lambda at: waits[at])
        return waits[self._at]

    def worked(self) -> None:
        """The URL in use proved good: forget its failures."""
        self._failures[self._at] = 0
        self._not_before_ms[self._at] = None

    def failed(self, now_ms: int, retry_after_ms: int = 0) -> None:
        """The URL in use failed; go on to the next. ``retry_after_ms`` is how long the instance asked for."""
        backoff_ms = min(self._limit_ms, self._first_ms * 2 ** min(self._failures[self._at], 32))
        self._failures[self._at] += 1
        # Never below what was asked for, and spread out, lest all clients of a restarted service meet in one instant.
        wait_ms = max(backoff_ms * self._chance.uniform(0.5, 1.0), retry_after_ms * self._chance.uniform(1.0, 1.25))
        self._not_before_ms[self._at] = now_ms + wait_ms
        self.advance()

    def advance(self) -> None:
        """Prefer the next URL from now on."""
        self._at = (self._at + 1) % len(self._urls)
