"""Telling a load balancer from restarts: a boot never comes back once another has taken its address."""

BOOTS_LIMIT = 8
"""How many boots of one address are remembered."""


class LoadBalancerDetector:
    """The boots that answered at one address. They take turns until for one lease one alone has answered."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._boots: dict[str, int] = {}
        self._last_boot_id: str | None = None
        self.until_ms: int | None = None

    def record_answer(self, boot_id: str, now_ms: int) -> None:
        """``boot_id`` answered."""
        another = boot_id != self._last_boot_id
        if another and (boot_id in self._boots or self.clears_in_ms(now_ms)):
            self.until_ms = now_ms + self._lease_ms
        self._last_boot_id = boot_id
        self._boots[boot_id] = now_ms
        if len(self._boots) > BOOTS_LIMIT:
            del self._boots[min(self._boots, key=lambda each: self._boots[each])]

    def clears_in_ms(self, now_ms: int) -> int:
        """For how long they will still be said to take turns, if one alone answers; 0 where they do not."""
        return 0 if self.until_ms is None else max(0, self.until_ms - now_ms)
