"""What this instance knows of one address behind the peers' name: is all that was registered there known here?

An *occupant* is the boot that answers at the address. `accounted_ms` is the moment up to which everything registered
at the address, with whichever occupant, is known here or has run out. It moves on with every word of an occupant and
with every refusal, as a machine that refuses has no occupant. Where it cannot move on without a gap, because an
occupant came, went or died unheard, somebody may have taken registrations in the gap and died with them; those run out
one lease after the end of the gap, and until then there is *doubt*.

| occupant | what is known | state |
| --- | --- | --- |
| never read | silent | unknown |
| never read | refuses, no doubt | does not count |
| read | last word within 3 s, no doubt | fresh |
| read | last word within 3 s, doubt | stale (warming_up), clears with the doubt |
| read | last word over 3 s ago | stale (timeout, or what the failure was) |
| dead | refuses, within a lease of its last word | stale (unreachable), clears by itself |
| dead | refuses, doubt | stale (unreachable), clears with the doubt |
| dead | refuses, neither | does not count |
| dead | refused once, silent for over 3 s since | stale (timeout): somebody may have come |
| any | left the name, accounted for when it did | does not count |
| any | left the name unaccounted for | stale (unreachable) for one lease from its leaving |
| several | take turns | stale (load_balancer), until for one lease one alone has answered |
| this instance | its own boot id answers | does not count |

An occupant that dies again before it has lived for a lease is not waited for again: one that dies over and over does
not keep the others incomplete.
"""

from enum import Enum, auto

from poolmuster.core.peer_messages import Row
from poolmuster.core.standings import FRESH, Standing
from poolmuster.core.turns import Turns
from poolmuster.model.source import SourceReason, SourceState

ANSWER_MS = 3_000
"""How old the last word of an occupant may be."""

GAP_MS = 2_000
"""Unheard time that is no gap: reading once a second, with something to spare."""


class Occupant(Enum):
    """Who is behind an address, as far as is known."""

    UNREAD = auto()
    READ = auto()
    NOBODY = auto()


class Account:
    """One address. All times are this instance's monotonic clock.

    ``from_ms`` is since when the address can have mattered: for those that an instance finds when it starts, its own
    start, as what was before is a matter of its being warm; for later ones, when the name was last read without them.
    """

    def __init__(self, address: str, from_ms: int, lease_ms: int, own_boot_id: str) -> None:
        self.address = address
        self._lease_ms = lease_ms
        self._own_boot_id = own_boot_id
        self.occupant = Occupant.UNREAD
        self.boot_id: str | None = None
        self.known_from_ms = from_ms
        self.accounted_ms = from_ms
        self.answered_ms: int | None = None
        self.read_ms: int | None = None
        self._started_ms = from_ms
        self._doubt_until_ms = from_ms
        self._leaving_until_ms = from_ms
        self._mourned_until_ms: int | None = None
        self._turns = Turns(lease_ms)
        self._trouble: tuple[SourceReason, str] | None = None
        self.left_ms: int | None = None

    @property
    def own(self) -> bool:
        """Whether it is this instance that answers here."""
        return self.boot_id == self._own_boot_id

    def read(self, boot_id: str, started_ms: int, said_ms: int) -> None:
        """``boot_id``, up since ``started_ms``, said at ``said_ms`` all that is registered with it until then."""
        self._turns.answered(boot_id, said_ms)
        if boot_id != self.boot_id:
            self._succeed(started_ms)
        self._started_ms = started_ms
        self.occupant, self.boot_id = Occupant.READ, boot_id
        self.accounted_ms = max(self.accounted_ms, said_ms)
        self.answered_ms = max(said_ms, self.answered_ms if self.answered_ms is not None else said_ms)
        self.read_ms = self.answered_ms
        self._leaving_until_ms = said_ms
        self._trouble = None

    def refused(self, now_ms: int) -> None:
        """The address refused a connection: nobody listens there."""
        self._succeed(now_ms)
        if self.occupant is Occupant.READ and self.read_ms is not None:
            self._mourn(self.read_ms)
        self.occupant, self.boot_id = Occupant.NOBODY, None
        self.accounted_ms = max(self.accounted_ms, now_ms)
        self.answered_ms = now_ms
        self._leaving_until_ms = now_ms

    def failed(self, reason: SourceReason, detail: str) -> None:
        """An attempt to read it failed otherwise; what it says then is why the last word is as old as it is."""
        self._trouble = (reason, detail)

    def left(self, now_ms: int) -> None:
        """The name no longer has the address."""
        self.left_ms = now_ms
        if now_ms - self.accounted_ms > GAP_MS and not self.own:
            self._leaving_until_ms = now_ms + self._lease_ms

    def returned(self) -> None:
        """The name has the address again."""
        self.left_ms = None

    def vouched(self, row: Row, accounted_ms: int, *, for_the_past: bool) -> None:
        """A peer whose whole list was taken knew all that was registered here until ``accounted_ms``.

        ``for_the_past``: what was before this instance's start is known by that list alone, so it has to reach up to
        where the own account begins.
        """
        if for_the_past and self.occupant is Occupant.UNREAD:
            self.known_from_ms = self.accounted_ms = accounted_ms
            self.boot_id = row.boot_id
        elif self.known_from_ms - accounted_ms <= GAP_MS:
            self._doubt_until_ms = self.known_from_ms
            if accounted_ms > self.accounted_ms:
                self.accounted_ms, self.boot_id = accounted_ms, row.boot_id
        elif for_the_past:
            self._doubt(self.known_from_ms)

    def row(self, now_ms: int) -> Row:
        """What others are told of it."""
        return Row(
            address=self.address,
            boot_id=self.boot_id,
            accounted_since_ms=0 if self.own else now_ms - self.accounted_ms,
            sure=self.sure(now_ms),
            doubt=self.doubtful(now_ms),
        )

    def _succeed(self, since_ms: int) -> None:
        """Another occupant, or none, since ``since_ms``: those before it are accounted for or there is doubt."""
        if since_ms - self.accounted_ms > GAP_MS:
            self.known_from_ms = since_ms
            self._doubt(since_ms)
        else:
            self.known_from_ms = min(self.known_from_ms, since_ms)

    def _doubt(self, died_ms: int) -> None:
        self._doubt_until_ms = max(self._doubt_until_ms, died_ms + self._lease_ms)

    def _mourn(self, heard_ms: int) -> None:
        if self._mourned_until_ms is None or heard_ms - self._started_ms >= self._lease_ms:
            self._mourned_until_ms = heard_ms + self._lease_ms

    def doubtful(self, now_ms: int) -> bool:
        """Whether an occupant may have taken what nobody here knows, and what has not run out."""
        return self._doubt_until_ms > now_ms

    def sure(self, now_ms: int) -> bool:
        """Whether all that is registered here is known, up to what an answer may take."""
        standing = self.standing(now_ms)
        return standing is None or standing.state is SourceState.FRESH

    def over(self, now_ms: int) -> bool:
        """Whether it left the name so long ago that it can be forgotten."""
        return self.left_ms is not None and now_ms - self.left_ms >= self._lease_ms

    def standing(self, now_ms: int) -> Standing | None:
        """Its state at ``now_ms``; ``None`` where it does not count."""
        if self.left_ms is not None:
            return self._waits(max(self._leaving_until_ms, self._doubt_until_ms), now_ms, SourceReason.UNREACHABLE)
        if (turns_ms := self._turns.left_ms(now_ms)) > 0:
            detail = "Several instances answer in turn at this address: it is a load balancer's. Name the instances."
            return Standing(SourceState.STALE, SourceReason.LOAD_BALANCER, detail, turns_ms)
        if self.own:
            return None
        if self.answered_ms is None or now_ms - self.answered_ms > ANSWER_MS:
            return self._silent()
        if self.occupant is Occupant.READ:
            return self._waits(self._doubt_until_ms, now_ms, SourceReason.WARMING_UP) or FRESH
        until_ms = max(self._doubt_until_ms, self._mourned_until_ms or self._doubt_until_ms)
        return self._waits(until_ms, now_ms, SourceReason.UNREACHABLE)

    def _silent(self) -> Standing:
        reason, detail = self._trouble or (SourceReason.TIMEOUT, "It does not answer.")
        state = SourceState.UNKNOWN if self.read_ms is None else SourceState.STALE
        return Standing(state, reason, detail)

    @staticmethod
    def _waits(until_ms: int, now_ms: int, reason: SourceReason) -> Standing | None:
        if until_ms <= now_ms:
            return None
        detail = "What was registered there last may not be known here."
        return Standing(SourceState.STALE, reason, detail, until_ms - now_ms)
