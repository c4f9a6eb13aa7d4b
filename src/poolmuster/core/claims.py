"""What is claimed of one pool by whom, and which claim holds.

A claim is a registration as one instance took it. A leaving is a deregistration. Times are this instance's monotonic
clock, whoever the claim was heard of. Rules:

- of the claims that no leaving beats the latest holds, whichever instance took it;
- a leaving beats every claim that is not later than the renewal which it ended. Without a relay id that is the moment
  of leaving itself. With one it is that relay's last renewal: a successor that registered since, elsewhere and unheard
  of there, stays, just as it would have, had both asked the same instance;
- a relay's leaving beats every claim of that relay, whatever the clocks say of their order, as a relay that left takes
  a new id. But where it was let in again after a successor, its claim says so, and only the times count;
- a leaving is kept until every lease that it ended would have run out.

Adding is a join: any order, any repetition gives the same. Only what an instance does itself is stamped, later than
all that it knows, so what it knew of comes before what it did.
"""

from typing import NamedTuple

import msgspec

from poolmuster.model.change import Departure
from poolmuster.model.registration import Registration

RELAYS_LIMIT = 8
"""How many relays' claims and leavings of one pool are kept at once, the latest."""


class Stamp(NamedTuple):
    """The order of claims: by time, and by who holds it where two were taken in the same millisecond."""

    at_ms: int
    holder: str
    relay_id: str
    body: bytes


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A registration that the instance ``holder`` (its boot id) took at ``renewed_ms``, for ``lease_ms``."""

    registration: Registration
    lease_ms: int
    renewed_ms: int
    holder: str
    again: bool = False

    @property
    def relay_id(self) -> str | None:
        return self.registration.relay_id

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.renewed_ms, self.holder, self.relay_id or "", self.registration.pool.body)


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """A deregistration at ``left_ms`` that ended the renewal at ``ended_ms`` and all before it."""

    departure: Departure
    left_ms: int
    ended_ms: int
    kept_until_ms: int

    @property
    def order(self) -> tuple[int, int, str, str]:
        return (self.left_ms, self.ended_ms, self.departure.reason or "", self.departure.detail or "")

    def beats(self, claim: Claim) -> bool:
        """Whether ``claim`` is over by this leaving."""
        if claim.renewed_ms <= self.ended_ms:
            return True
        relay_id = self.departure.relay_id
        return relay_id is not None and relay_id == claim.relay_id and not claim.again


class Claims:
    """All claims and leavings of one pool, one of each for each relay."""

    __slots__ = ("_claims", "_leavings")

    def __init__(self) -> None:
        self._claims: dict[str | None, Claim] = {}
        self._leavings: dict[str | None, Leaving] = {}

    def add(self, claim: Claim) -> None:
        """Take in a claim, heard or made."""
        known = self._claims.get(claim.relay_id)
        if known is not None:
            later = max(known, claim, key=lambda each: each.stamp)
            again = known.again or claim.again
            claim = later if later.again == again else msgspec.structs.replace(later, again=again)
        self._claims[claim.relay_id] = claim
        if len(self._claims) > RELAYS_LIMIT:
            del self._claims[min(self._claims.values(), key=lambda each: each.stamp).relay_id]

    def leave(self, leaving: Leaving) -> None:
        """Take in a leaving, heard or made."""
        relay_id = leaving.departure.relay_id
        known = self._leavings.get(relay_id)
        if known is not None:
            later = max(known, leaving, key=lambda each: each.order)
            leaving = Leaving(
                later.departure,
                later.left_ms,
                max(known.ended_ms, leaving.ended_ms),
                max(known.kept_until_ms, leaving.kept_until_ms),
            )
        self._leavings[relay_id] = leaving
        if len(self._leavings) > RELAYS_LIMIT:
            del self._leavings[min(self._leavings.values(), key=lambda each: each.order).departure.relay_id]

    def kept(self, now_ms: int) -> list[Leaving]:
        """The leavings that others may still have to hear of."""
        return [leaving for leaving in self._leavings.values() if leaving.kept_until_ms > now_ms]

    def beaten_by(self, claim: Claim, now_ms: int) -> Leaving | None:
        """The latest leaving that beats ``claim``, if any does."""
        beating = [leaving for leaving in self.kept(now_ms) if leaving.beats(claim)]
        return max(beating, key=lambda each: each.order, default=None)

    def holds(self, now_ms: int) -> Claim | None:
        """The claim that holds; its lease may have ended."""
        kept = self.kept(now_ms)
        standing = (claim for claim in self._claims.values() if not any(leaving.beats(claim) for leaving in kept))
        return max(standing, key=lambda each: each.stamp, default=None)

    def latest(self) -> Claim | None:
        """The claim of the relay that registered last, whether it left since or not."""
        return max(self._claims.values(), key=lambda each: each.stamp, default=None)

    def left_by(self, relay_id: str | None, now_ms: int) -> bool:
        """Whether ``relay_id`` left, as far as is still remembered."""
        return any(leaving.departure.relay_id == relay_id for leaving in self.kept(now_ms))

    def last_leaving(self, now_ms: int) -> Leaving | None:
        """The leaving that is the latest event of all, if it is one and not a registration."""
        leaving = max(self._leavings.values(), key=lambda each: each.order, default=None)
        claim = self.holds(now_ms)
        if leaving is None or (claim is not None and claim.renewed_ms > leaving.left_ms):
            return None
        return leaving

    def moment_ms(self, now_ms: int) -> int:
        """When what happens at ``now_ms`` is taken to happen: not before anything that is known to have happened."""
        claims = max((each.renewed_ms for each in self._claims.values()), default=now_ms)
        leavings = max((each.left_ms for each in self._leavings.values()), default=now_ms)
        return max(now_ms, claims, leavings)

    def claim_ms(self, registration: Registration, now_ms: int) -> int:
        """When a registration at ``now_ms`` is taken to happen: after all that is known, but for what it repeats."""
        before = [each.left_ms for each in self._leavings.values()]
        before += [
            each.renewed_ms
            for each in self._claims.values()
            if each.relay_id != registration.relay_id or each.registration.pool.body != registration.pool.body
        ]
        return max(self.moment_ms(now_ms), max(before, default=now_ms - 1) + 1)
