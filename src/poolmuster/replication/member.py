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

from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.registry.source_status import SourceStatus
from poolmuster.replication.alternation import LoadBalancerDetector
from poolmuster.replication.messages import MemberSummary

ANSWER_MS = 3_000
"""How old the last word of an occupant may be."""

GAP_MS = 2_000
"""Unheard time that is no gap: reading once a second, with something to spare."""


class MemberStatus(Enum):
    """Who is behind an address, as far as is known."""

    UNREAD = auto()
    READ = auto()
    NOBODY = auto()


class Member:
    """One address. All times are this instance's monotonic clock.

    ``from_ms`` is since when the address can have mattered: for those that an instance finds when it starts, its own
    start, as what was before is a matter of its being warm; for later ones, when the name was last read without them.
    """

    def __init__(self, address: str, from_ms: int, lease_ms: int, own_boot_id: str) -> None:
        self.address = address
        self._lease_ms = lease_ms
        self._own_boot_id = own_boot_id
        self.status = MemberStatus.UNREAD
        self.boot_id: str | None = None
        self.synced_from_ms = from_ms
        self.synced_until_ms = from_ms
        self.answered_ms: int | None = None
        self.read_ms: int | None = None
        self._started_ms = from_ms
        self._sync_gap_until_ms = from_ms
        self._leaving_until_ms = from_ms
        self._grace_until_ms: int | None = None
        self._load_balancer = LoadBalancerDetector(lease_ms)
        self._failure: tuple[SourceReason, str] | None = None
        self.left_ms: int | None = None

    @property
    def own(self) -> bool:
        """Whether it is this instance that answers here."""
        return self.boot_id == self._own_boot_id

    def read(self, boot_id: str, started_ms: int, said_ms: int) -> None:
        """``boot_id``, up since ``started_ms``, said at ``said_ms`` all that is registered with it until then."""
        self._load_balancer.record_answer(boot_id, said_ms)
        if boot_id != self.boot_id:
            self._replace_occupant(started_ms)
        self._started_ms = started_ms
        self.status, self.boot_id = MemberStatus.READ, boot_id
        self.synced_until_ms = max(self.synced_until_ms, said_ms)
        self.answered_ms = max(said_ms, self.answered_ms if self.answered_ms is not None else said_ms)
        self.read_ms = self.answered_ms
        self._leaving_until_ms = said_ms
        self._failure = None

    def refused(self, now_ms: int) -> None:
        """The address refused a connection: nobody listens there."""
        self._replace_occupant(now_ms)
        if self.status is MemberStatus.READ and self.read_ms is not None:
            self._start_grace(self.read_ms)
        self.status, self.boot_id = MemberStatus.NOBODY, None
        self.synced_until_ms = max(self.synced_until_ms, now_ms)
        self.answered_ms = now_ms
        self._leaving_until_ms = now_ms

    def failed(self, reason: SourceReason, detail: str) -> None:
        """An attempt to read it failed otherwise; what it says then is why the last word is as old as it is."""
        self._failure = (reason, detail)

    def left_name(self, now_ms: int) -> None:
        """The name no longer has the address."""
        self.left_ms = now_ms
        if now_ms - self.synced_until_ms > GAP_MS and not self.own:
            self._leaving_until_ms = now_ms + self._lease_ms

    def rejoined_name(self) -> None:
        """The name has the address again."""
        self.left_ms = None

    def adopt_sync_state(self, row: MemberSummary, accounted_ms: int, *, for_the_past: bool) -> None:
        """A peer whose whole list was taken knew all that was registered here until ``accounted_ms``.

        ``for_the_past``: what was before this instance's start is known by that list alone, so it has to reach up to
        where the own account begins.
        """
        if for_the_past and self.status is MemberStatus.UNREAD:
            self.synced_from_ms = self.synced_until_ms = accounted_ms
            self.boot_id = row.boot_id
        elif self.synced_from_ms - accounted_ms <= GAP_MS:
            self._sync_gap_until_ms = self.synced_from_ms
            if accounted_ms > self.synced_until_ms:
                self.synced_until_ms, self.boot_id = accounted_ms, row.boot_id
        elif for_the_past:
            self._start_sync_gap(self.synced_from_ms)

    def summary(self, now_ms: int) -> MemberSummary:
        """What others are told of it."""
        return MemberSummary(
            address=self.address,
            boot_id=self.boot_id,
            synced_ms_ago=0 if self.own else now_ms - self.synced_until_ms,
            synced=self.is_synced(now_ms),
            sync_gap=self.has_sync_gap(now_ms),
        )

    def _replace_occupant(self, since_ms: int) -> None:
        """Another occupant, or none, since ``since_ms``: those before it are accounted for or there is doubt."""
        if since_ms - self.synced_until_ms > GAP_MS:
            self.synced_from_ms = since_ms
            self._start_sync_gap(since_ms)
        else:
            self.synced_from_ms = min(self.synced_from_ms, since_ms)

    def _start_sync_gap(self, died_ms: int) -> None:
        self._sync_gap_until_ms = max(self._sync_gap_until_ms, died_ms + self._lease_ms)

    def _start_grace(self, heard_ms: int) -> None:
        if self._grace_until_ms is None or heard_ms - self._started_ms >= self._lease_ms:
            self._grace_until_ms = heard_ms + self._lease_ms

    def has_sync_gap(self, now_ms: int) -> bool:
        """Whether an occupant may have taken what nobody here knows, and what has not run out."""
        return self._sync_gap_until_ms > now_ms

    def is_synced(self, now_ms: int) -> bool:
        """Whether all that is registered here is known, up to what an answer may take."""
        standing = self.source_status(now_ms)
        return standing is None or standing.state is SourceState.FRESH

    def is_forgettable(self, now_ms: int) -> bool:
        """Whether it left the name so long ago that it can be forgotten."""
        return self.left_ms is not None and now_ms - self.left_ms >= self._lease_ms

    @property
    def silent_after_ms(self) -> int | None:
        """The end of the time in which its last answer counts; ``None`` where there was none."""
        return None if self.answered_ms is None else self.answered_ms + ANSWER_MS

    def source_status(self, now_ms: int) -> SourceStatus | None:
        """Its status at ``now_ms``; ``None`` where it does not count."""
        if self.left_ms is not None:
            until_ms = max(self._leaving_until_ms, self._sync_gap_until_ms)
            return self._stale_until(until_ms, now_ms, SourceReason.UNREACHABLE)
        if (turns_ms := self._load_balancer.clears_in_ms(now_ms)) > 0:
            detail = "Several instances answer in turn at this address: it is a load balancer's. Name the instances."
            return self._stale(SourceReason.LOAD_BALANCER, detail, clears_at_ms=now_ms + turns_ms)
        if self.own:
            return None
        if self.silent_after_ms is None or now_ms > self.silent_after_ms:
            return self._not_answering()
        if self.status is MemberStatus.READ:
            return self._stale_until(self._sync_gap_until_ms, now_ms, SourceReason.WARMING_UP) or SourceStatus(
                kind=SourceKind.PEER, name=self.address, fresh_until_ms=self.silent_after_ms
            )
        until_ms = max(self._sync_gap_until_ms, self._grace_until_ms or self._sync_gap_until_ms)
        return self._stale_until(until_ms, now_ms, SourceReason.UNREACHABLE)

    def _not_answering(self) -> SourceStatus:
        reason, detail = self._failure or (SourceReason.TIMEOUT, "It does not answer.")
        return self._stale(reason, detail, SourceState.UNKNOWN if self.read_ms is None else SourceState.STALE)

    def _stale_until(self, until_ms: int, now_ms: int, reason: SourceReason) -> SourceStatus | None:
        if until_ms <= now_ms:
            return None
        return self._stale(reason, "What was registered there last may not be known here.", clears_at_ms=until_ms)

    def _stale(
        self,
        reason: SourceReason,
        detail: str,
        state: SourceState = SourceState.STALE,
        *,
        clears_at_ms: int | None = None,
    ) -> SourceStatus:
        return SourceStatus(
            kind=SourceKind.PEER,
            name=self.address,
            state=state,
            reason=reason,
            detail=detail,
            clears_at_ms=clears_at_ms,
            last_good_ms=self.read_ms,
        )
