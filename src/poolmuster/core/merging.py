"""Merging: what was registered here and what peers said become one list, in `Reading`s for the roster.

Of each pool `poolmuster.core.claims` says which claim holds. Here is what that means for the roster: a claim that
begins to hold is a renewal for what remains of its lease, one that is beaten without a successor is a departure. Ends
of leases are the roster's own. Nothing that was heard goes into the journal: each instance passes on what it took
itself, and the whole of its list only to one that starts.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from poolmuster.core.claims import Claim, Claims, Leaving
from poolmuster.core.journal import Journal, left_message, registered_message, remaining
from poolmuster.core.lease_time import LeaseTime
from poolmuster.core.peer_messages import Left, Registered
from poolmuster.core.reading import Reading, Renewal
from poolmuster.core.records import REMEMBERED_MS, Record, Records
from poolmuster.model.change import Departure
from poolmuster.model.errors import RelayLeft
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Registration

GRACE_MS = 3_000
"""How much longer than a lease a leaving is kept: a heartbeat that was under way may have been taken after it.
Claims are kept as long, as one of them may say that its relay was let in again."""

FORGOTTEN_A_TURN = 1_000


class Known(msgspec.Struct, gc=False):
    """A pool that is live, or was a short while ago. ``until_ms`` is when nothing of it matters any more."""

    claims: Claims
    until_ms: int


class Merging:
    """The claims of all instances that this one (``boot_id``) knows of. Its own leases are ``lease_ms`` long."""

    def __init__(self, boot_id: str, lease_ms: int) -> None:
        self._boot_id = boot_id
        self._lease_ms = lease_ms
        self._known: OrderedDict[PoolKey, Known] = OrderedDict()
        self._records = Records(lease_ms)
        self._lease_time = LeaseTime()
        self.journal = Journal()

    def __len__(self) -> int:
        return len(self._known) + len(self._records)

    @property
    def live(self) -> int:
        """How many pools are live, or were a short while ago."""
        return len(self._known)

    def knows(self, key: PoolKey) -> bool:
        """Whether it is one of these."""
        return key in self._known

    def paused(self, ended_ms: int, length_ms: int) -> None:
        """This process was stopped; say so before what comes after is put, left or heard (rule L5)."""
        self._lease_time.pause(ended_ms, length_ms)

    def put(self, registration: Registration, now_ms: int) -> Reading:
        """Take a registration. Raises `RelayLeft`, with nothing changed."""
        key, relay_id = registration.key, registration.relay_id
        self._check_not_left(key, relay_id, now_ms)
        known = self._touch(key, now_ms + self._lease_ms + GRACE_MS)
        claim = Claim(
            registration=registration,
            lease_ms=self._lease_ms,
            renewed_ms=known.claims.claim_ms(registration, now_ms),
            holder=self._boot_id,
            again=relay_id is not None and known.claims.left_by(relay_id, now_ms),
        )
        known.claims.add(claim)
        self.journal.claimed(claim)
        return Reading(
            started_ms=now_ms, renewals=(Renewal(registration, self._lease_ms, self._lease_ms),), ends_leases=False
        )

    def _check_not_left(self, key: PoolKey, relay_id: str | None, now_ms: int) -> None:
        if relay_id is None:
            return
        left_relay_id, at_ms = None, now_ms
        if (known := self._known.get(key)) is not None:
            if (leaving := known.claims.last_leaving(now_ms)) is not None:
                left_relay_id, at_ms = leaving.departure.relay_id, leaving.left_ms
        elif (record := self._records.get(key)) is not None:
            left_relay_id, at_ms = record.left_relay_id, record.at_ms
        if left_relay_id == relay_id and now_ms - at_ms < REMEMBERED_MS:
            raise RelayLeft(
                f"Relay {relay_id!r} deregistered this pool. A relay that starts again takes a new relay_id."
            )

    def leave(self, departure: Departure, now_ms: int) -> Reading | None:
        """Take a deregistration; ``None`` where it does not act: unknown key, or another relay was the latest."""
        key, relay_id = departure.key, departure.relay_id
        if self._records.leave(key, relay_id, now_ms):
            return None
        latest = self._known[key].claims.latest() if key in self._known else None
        if latest is None or (relay_id is not None and relay_id != latest.relay_id):
            return None
        known = self._touch(key, now_ms + self._lease_ms + GRACE_MS)
        left_ms = known.claims.moment_ms(now_ms)
        leaving = Leaving(
            departure=departure,
            left_ms=left_ms,
            ended_ms=left_ms if relay_id is None else latest.renewed_ms,
            kept_until_ms=now_ms + max(self._lease_ms, latest.lease_ms) + GRACE_MS,
        )
        before = known.claims.holds(now_ms)
        known.claims.leave(leaving)
        known.until_ms = max(known.until_ms, leaving.kept_until_ms)
        self.journal.left(leaving)
        return self._reading({key: before}, now_ms)

    def hear(self, said: Iterable[Claim | Leaving], now_ms: int) -> Reading:
        """Take in what peers say."""
        before: dict[PoolKey, Claim | None] = {}
        for each in said:
            if isinstance(each, Leaving):
                key, until_ms = each.departure.key, each.kept_until_ms
            else:
                key, until_ms = each.registration.key, each.renewed_ms + each.lease_ms + GRACE_MS
            known = self._touch(key, until_ms)
            if key not in before:
                before[key] = known.claims.holds(now_ms)
            if isinstance(each, Leaving):
                known.claims.leave(each)
            else:
                known.claims.add(each)
        return self._reading(before, now_ms)

    def _reading(self, before: dict[PoolKey, Claim | None], now_ms: int) -> Reading:
        """What the roster is told, where ``before`` held so far. Of a pool either a renewal or a departure."""
        told = [self._turn(key, claim, now_ms) for key, claim in before.items()]
        return Reading(
            started_ms=now_ms,
            renewals=tuple(each for each in told if isinstance(each, Renewal)),
            departures=tuple(each for each in told if isinstance(each, Departure)),
            ends_leases=False,
        )

    def _turn(self, key: PoolKey, before: Claim | None, now_ms: int) -> Renewal | Departure | None:
        claims = self._known[key].claims
        own = self.journal.claim(key)
        if own is not None and claims.beaten_by(own, now_ms) is not None:
            self.journal.drop(key)
        holds = claims.holds(now_ms)
        if holds is not None and before is not None and holds.stamp == before.stamp:
            return None
        if holds is not None and (remaining_ms := self._remaining_ms(holds, now_ms)) > 0:
            return Renewal(holds.registration, holds.lease_ms, remaining_ms)
        leaving = None if before is None else claims.beaten_by(before, now_ms)
        return None if leaving is None else leaving.departure

    def _remaining_ms(self, claim: Claim, now_ms: int) -> int:
        return min(claim.lease_ms, claim.lease_ms - self._lease_time.between_ms(claim.renewed_ms, now_ms))

    def _touch(self, key: PoolKey, until_ms: int) -> Known:
        known = self._known.get(key)
        if known is None:
            self._records.pop(key)
            known = self._known[key] = Known(Claims(), until_ms)
        known.until_ms = max(known.until_ms, until_ms)
        self._known.move_to_end(key)
        return known

    def whole(self, now_ms: int) -> Iterator[Registered | Left]:
        """All that is listed or remembered, for an instance that starts."""
        for known in self._known.values():
            yield from self.told(known, now_ms)

    def everything(self) -> list[Known]:
        """All that `told` is to be asked of, where a whole list is told piece by piece."""
        return list(self._known.values())

    def told(self, known: Known, now_ms: int) -> Iterator[Registered | Left]:
        """What a whole list says of one pool."""
        for leaving in known.claims.kept(now_ms):
            yield left_message(leaving, now_ms)
        claim = known.claims.holds(now_ms)
        if claim is not None and remaining(claim, now_ms) > 0:
            yield registered_message(claim, 0, now_ms)

    def forget(self, now_ms: int) -> None:
        """Drop what is over, a bounded number a turn: pools to their record, records after an hour."""
        self.journal.forget(now_ms)
        for _ in range(min(FORGOTTEN_A_TURN, len(self._known))):
            key, known = next(iter(self._known.items()))
            if self._over(known, now_ms):
                del self._known[key]
                self._remember(key, known, now_ms)
            else:
                self._known.move_to_end(key)
        self._records.forget(now_ms)

    def _over(self, known: Known, now_ms: int) -> bool:
        if known.until_ms > now_ms:
            return False
        claim = known.claims.holds(now_ms)
        return claim is None or self._remaining_ms(claim, now_ms) <= 0

    def _remember(self, key: PoolKey, known: Known, now_ms: int) -> None:
        latest, leaving = known.claims.latest(), known.claims.last_leaving(now_ms)
        if latest is None:
            return
        at_ms = latest.renewed_ms if leaving is None else leaving.left_ms
        left_relay_id = leaving.departure.relay_id if leaving else None
        self._records.put(key, Record(latest.relay_id, left_relay_id, at_ms))
