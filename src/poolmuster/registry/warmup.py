"""The warm-up of registrations that are held in memory: until when live ones may be missing."""

from poolmuster.model.lease_policy import LeasePolicy


class Warmup:
    """Warm is what has been up for one lease: every live relay has renewed here by then, or elsewhere.

    A pause longer than the slack starts it anew, as leases may have ended and begun elsewhere meanwhile; a shorter one
    during it extends it, so that the renewals have their whole lease to arrive. Times are monotonic.
    """

    def __init__(self, policy: LeasePolicy, now_ms: int) -> None:
        self._policy = policy
        self.warm_at_ms = now_ms + policy.duration_ms

    def is_warm(self, now_ms: int) -> bool:
        return now_ms >= self.warm_at_ms

    def paused(self, ended_ms: int, length_ms: int) -> None:
        """The process was stopped for ``length_ms`` until ``ended_ms``."""
        if length_ms > self._policy.slack_ms:
            self.restart(ended_ms)
        elif self.warm_at_ms > ended_ms - length_ms:
            self.warm_at_ms += length_ms

    def restart(self, now_ms: int) -> None:
        """Registrations may have been missed until ``now_ms``."""
        self.warm_at_ms = max(self.warm_at_ms, now_ms + self._policy.duration_ms)
