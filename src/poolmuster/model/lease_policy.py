"""How long leases last and how often relays renew them."""

import msgspec


class LeasePolicy(msgspec.Struct, frozen=True):
    """``duration_ms`` is the length of a lease, ``heartbeat_ms`` the interval at which relays renew it."""

    duration_ms: int
    heartbeat_ms: int

    @property
    def slack_ms(self) -> int:
        """By how much a lease outlasts a heartbeat, in milliseconds."""
        return self.duration_ms - self.heartbeat_ms
