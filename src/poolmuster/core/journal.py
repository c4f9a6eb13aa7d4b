"""The journal: what was registered with this instance, and deregistered here, in the order of its happening.

It holds one place for each pool and one for each leaving, moved to the end when something happens to it. So what
happened after any number is at most one entry each, and the journal is never longer than what is live.
"""

from collections import OrderedDict
from itertools import islice

import msgspec

from poolmuster.core.claims import Claim, Leaving
from poolmuster.core.peer_messages import Entry, Left, Registered, Renewed
from poolmuster.model.key import PoolKey

FORGOTTEN_A_TURN = 1_000


class Place(msgspec.Struct, gc=False):
    """One thing in the journal. ``number`` is the ``seq`` at which a claim got the facts it has."""

    seq: int
    number: int
    what: Claim | Leaving


class Journal:
    """What peers are told. ``seq`` is the number of what happened last, ``news_seq`` of what was not a mere renewal."""

    def __init__(self) -> None:
        self.seq = 0
        self.news_seq = 0
        self._looked_at = 0
        self._places: OrderedDict[tuple[PoolKey, str | None, bool], Place] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def claimed(self, claim: Claim) -> None:
        """This instance took a registration."""
        self.seq += 1
        at = (claim.registration.key, None, True)
        place = self._places.get(at)
        if place is not None and isinstance(place.what, Claim) and _same(place.what, claim):
            place.seq, place.what = self.seq, claim
        else:
            self._places[at] = Place(self.seq, self.seq, claim)
            self.news_seq = self.seq
        self._places.move_to_end(at)

    def left(self, leaving: Leaving) -> None:
        """This instance took a deregistration; the claim that it ended is dropped by `drop`."""
        self.seq += 1
        at = (leaving.departure.key, leaving.departure.relay_id, False)
        self._places[at] = Place(self.seq, self.seq, leaving)
        self._places.move_to_end(at)
        self.news_seq = self.seq

    def claim(self, key: PoolKey) -> Claim | None:
        """What was last registered with this instance of ``key``, while its lease runs."""
        place = self._places.get((key, None, True))
        return place.what if place is not None and isinstance(place.what, Claim) else None

    def drop(self, key: PoolKey) -> None:
        """The claim of ``key`` was beaten: nobody need hear of it any more."""
        self._places.pop((key, None, True), None)

    def since(self, seq: int, now_ms: int) -> tuple[Entry, ...]:
        """What happened after ``seq`` and still matters, in order."""
        entries = (entry_of(place, seq, now_ms) for _, place in self.after(seq))
        return tuple(entry for entry in entries if entry is not None)

    def after(self, seq: int) -> list[tuple[int, Place]]:
        """The places of what happened after ``seq``, each under its number now, in order.

        To be told piece by piece: what happens to a place meanwhile has another number, and is told again.
        """
        found: list[tuple[int, Place]] = []
        for place in reversed(self._places.values()):
            if place.seq <= seq:
                break
            found.append((place.seq, place))
        found.reverse()
        return found

    def forget(self, now_ms: int) -> None:
        """Drop what is over, so many places a turn: what is kept for long must not keep all that came after it."""
        window = list(islice(self._places.items(), self._looked_at, self._looked_at + FORGOTTEN_A_TURN))
        over = [at for at, place in window if _is_over(place, now_ms)]
        for at in over:
            del self._places[at]
        self._looked_at += len(window) - len(over)
        if self._looked_at >= len(self._places):
            self._looked_at = 0


def _is_over(place: Place, now_ms: int) -> bool:
    if isinstance(place.what, Leaving):
        return place.what.kept_until_ms <= now_ms
    return remaining(place.what, now_ms) <= 0


def entry_of(place: Place, seq: int, now_ms: int) -> Entry | None:
    """What is said of ``place`` to whoever knows all up to ``seq``; ``None`` where it is over."""
    if isinstance(place.what, Leaving):
        return left_message(place.what, now_ms) if place.what.kept_until_ms > now_ms else None
    if (remaining_ms := remaining(place.what, now_ms)) <= 0:
        return None
    if place.number <= seq:
        return Renewed(number=place.number, remaining_ms=remaining_ms)
    return registered_message(place.what, place.number, now_ms)


def _same(one: Claim, other: Claim) -> bool:
    return (
        one.registration.pool.body == other.registration.pool.body
        and one.relay_id == other.relay_id
        and one.lease_ms == other.lease_ms
        and one.again == other.again
    )


def remaining(claim: Claim, now_ms: int) -> int:
    """How much of its lease a claim has left by the plain clock, which is what others are told."""
    return claim.lease_ms - (now_ms - claim.renewed_ms)


def registered_message(claim: Claim, number: int, now_ms: int) -> Registered:
    """A claim as it is sent at ``now_ms``."""
    return Registered(
        number=number,
        registration=msgspec.Raw(claim.registration.pool.body),
        relay_id=claim.relay_id,
        lease_ms=claim.lease_ms,
        remaining_ms=remaining(claim, now_ms),
        again=claim.again,
    )


def left_message(leaving: Leaving, now_ms: int) -> Left:
    """A leaving as it is sent at ``now_ms``."""
    key = leaving.departure.key
    return Left(
        cluster_id=key.cluster_id,
        namespace=key.namespace,
        dgd_name=key.dgd_name,
        relay_id=leaving.departure.relay_id,
        since_ms=now_ms - leaving.left_ms,
        ended_since_ms=now_ms - leaving.ended_ms,
        kept_ms=leaving.kept_until_ms - now_ms,
        reason=leaving.departure.reason,
        detail=leaving.departure.detail,
    )
