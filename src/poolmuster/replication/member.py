"""One member: an address behind the peers' name, and how far what was registered there is known here.

The *occupant* of an address is the boot that answers there. `Member.synced_until_ms` is the time up to which everything
that was registered at the address, with whichever occupant, is known here or has expired. It advances with every
message of an occupant and with every refusal, as an address that refuses has no occupant. An occupant that came, went
or died unread leaves a *sync gap*: it may have accepted registrations that no living instance knows, and that expire
one lease after the end of the gap.

| state | and | source |
| --- | --- | --- |
| `UNREAD` | | unknown |
| `READ` | last message within 3 s, no sync gap | fresh |
| `READ` | last message within 3 s, sync gap | stale (warming_up) until the gap ends |
| `READ` | last message over 3 s ago | stale (timeout, or the failure) |
| `REFUSED` | within a lease of its last message, or sync gap | stale (unreachable) until both end |
| `REFUSED` | neither | does not count |
| `REFUSED` | last refusal over 3 s ago | as `READ` or `UNREAD`: there may be a new occupant |
| `OWN` | | does not count |
| any | several boots answer in turn | stale (load_balancer) until one alone has answered for a lease |
| any | `LEFT` the name, no sync gap | does not count |
| any | `LEFT_UNSYNCED`, or sync gap | stale (unreachable) for a lease from leaving, or from the end of the gap |

The grace of a lease after the last message starts again only where the occupant had lived for a lease: one that dies
over and over does not keep the list incomplete.
"""

from collections.abc import Iterator
from enum import Enum, auto

from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.registry.source_status import SourceStatus
from poolmuster.replication.messages import MemberSummary

ANSWER_MS = 3_000
"""The greatest age of the last message of an occupant."""

GAP_MS = 2_000
"""Time without a message that is no sync gap: a poll a second, with something to spare."""

BOOTS_LIMIT = 8
"""The number of boots of one address that are remembered."""

UNSYNCED = "What was registered there last may not be known here."
BALANCED = "Several instances answer in turn at this address: it is a load balancer's. Name the instances."


class MemberState(Enum):
    """What the address did last: nothing yet, a peer answered, this instance itself answered, it refused."""

    UNREAD = auto()
    READ = auto()
    OWN = auto()
    REFUSED = auto()


class NameState(Enum):
    """Whether the name has the address. ``LEFT_UNSYNCED``: it left more than `GAP_MS` after ``synced_until_ms``."""

    NAMED = auto()
    LEFT = auto()
    LEFT_UNSYNCED = auto()


class MemberEvent(Enum):
    """``ADOPTED``: a peer's sync state was taken over. ``OWN_FOUND``: this instance answered, here or to that peer."""

    ANSWERED = auto()
    OWN_FOUND = auto()
    REFUSED = auto()
    ADOPTED = auto()
    LEFT_NAME = auto()
    LEFT_NAME_UNSYNCED = auto()
    REJOINED_NAME = auto()


TRANSITIONS = {
    MemberEvent.ANSWERED: MemberState.READ,
    MemberEvent.OWN_FOUND: MemberState.OWN,
    MemberEvent.REFUSED: MemberState.REFUSED,
}
"""From any state. Every other event keeps the state."""

NAME_TRANSITIONS = {
    (NameState.NAMED, MemberEvent.LEFT_NAME): NameState.LEFT,
    (NameState.NAMED, MemberEvent.LEFT_NAME_UNSYNCED): NameState.LEFT_UNSYNCED,
    (NameState.LEFT, MemberEvent.REJOINED_NAME): NameState.NAMED,
    (NameState.LEFT_UNSYNCED, MemberEvent.REJOINED_NAME): NameState.NAMED,
    (NameState.LEFT_UNSYNCED, MemberEvent.ANSWERED): NameState.LEFT,
    (NameState.LEFT_UNSYNCED, MemberEvent.OWN_FOUND): NameState.LEFT,
    (NameState.LEFT_UNSYNCED, MemberEvent.REFUSED): NameState.LEFT,
}
"""Every other event keeps the state."""


class Member:
    """One address. All times are this instance's monotonic clock.

    ``from_ms`` is since when the address matters: for addresses that an instance finds when it starts its own start, as
    what was before is a matter of its warm-up; for later ones, when the name was last resolved without them.
    """

    def __init__(self, address: str, from_ms: int, lease_ms: int, own_boot_id: str) -> None:
        self.address = address
        self._lease_ms = lease_ms
        self._own_boot_id = own_boot_id
        self.state = MemberState.UNREAD
        self.name_state = NameState.NAMED
        self.boot_id: str | None = None
        """The occupant at ``synced_until_ms``; ``None`` where there was none."""
        self.synced_from_ms = from_ms
        """The start of the time that is known without a gap up to ``synced_until_ms``."""
        self.synced_until_ms = from_ms
        self.answered_ms: int | None = None
        """The last message or refusal."""
        self.read_ms: int | None = None
        """The last message."""
        self.left_ms: int | None = None
        self._occupant_started_ms = from_ms
        self._sync_gap_until_ms = from_ms
        self._grace_until_ms: int | None = None
        self._load_balancer = LoadBalancerDetector(lease_ms)
        self._failure: tuple[SourceReason, str] | None = None

    @property
    def own(self) -> bool:
        """Whether this instance itself is at the address."""
        return self.state is MemberState.OWN

    def _on(self, event: MemberEvent) -> None:
        self.state = TRANSITIONS.get(event, self.state)
        self.name_state = NAME_TRANSITIONS.get((self.name_state, event), self.name_state)

    def _set_occupant(self, boot_id: str | None, event: MemberEvent) -> None:
        self.boot_id = boot_id
        self._on(MemberEvent.OWN_FOUND if boot_id == self._own_boot_id else event)

    def read(self, boot_id: str, started_ms: int, as_of_ms: int) -> None:
        """``boot_id``, up since ``started_ms``, answered with all that was registered with it until ``as_of_ms``."""
        self._load_balancer.record_answer(boot_id, as_of_ms)
        if boot_id != self.boot_id:
            self._replace_occupant(started_ms)
        self._set_occupant(boot_id, MemberEvent.ANSWERED)
        self._occupant_started_ms = started_ms
        self.synced_until_ms = max(self.synced_until_ms, as_of_ms)
        self.answered_ms = self.read_ms = max(as_of_ms, as_of_ms if self.answered_ms is None else self.answered_ms)
        self._failure = None

    def refused(self, now_ms: int) -> None:
        """The address refused a connection, so it has no occupant."""
        self._replace_occupant(now_ms)
        if self.read_ms is not None:
            self._start_grace(self.read_ms)
        self._set_occupant(None, MemberEvent.REFUSED)
        self.synced_until_ms = max(self.synced_until_ms, now_ms)
        self.answered_ms = now_ms

    def failed(self, reason: SourceReason, detail: str) -> None:
        """An attempt to read it failed in another way. The status says so once the last message is too old."""
        self._failure = (reason, detail)

    def left_name(self, now_ms: int) -> None:
        """The name no longer has the address."""
        self.left_ms = now_ms
        synced = self.own or now_ms - self.synced_until_ms <= GAP_MS
        self._on(MemberEvent.LEFT_NAME if synced else MemberEvent.LEFT_NAME_UNSYNCED)

    def rejoined_name(self) -> None:
        """The name has the address again."""
        self.left_ms = None
        self._on(MemberEvent.REJOINED_NAME)

    def adopt_sync_state(self, boot_id: str | None, synced_until_ms: int, *, warming_up: bool) -> None:
        """A peer whose snapshot was merged knew what was registered here until ``synced_until_ms``, with ``boot_id``.

        While this instance is ``warming_up``, what was before its start is known by that snapshot alone, so the peer's
        state has to reach up to where the own one begins.
        """
        if warming_up and self.state is MemberState.UNREAD:
            self.synced_from_ms = self.synced_until_ms = self._sync_gap_until_ms = synced_until_ms
            self._set_occupant(boot_id, MemberEvent.ADOPTED)
        elif self.synced_from_ms - synced_until_ms <= GAP_MS:
            self._sync_gap_until_ms = self.synced_from_ms
            if synced_until_ms > self.synced_until_ms:
                self.synced_until_ms = synced_until_ms
                self._set_occupant(boot_id, MemberEvent.ADOPTED)
        elif warming_up:
            self._start_sync_gap(self.synced_from_ms)

    def _replace_occupant(self, since_ms: int) -> None:
        """Another occupant, or none, since ``since_ms``: the time before it was synced, or there is a sync gap."""
        if since_ms - self.synced_until_ms > GAP_MS:
            self.synced_from_ms = since_ms
            self._start_sync_gap(since_ms)
        else:
            self.synced_from_ms = min(self.synced_from_ms, since_ms)

    def _start_sync_gap(self, ended_ms: int) -> None:
        self._sync_gap_until_ms = max(self._sync_gap_until_ms, ended_ms + self._lease_ms)

    def _start_grace(self, read_ms: int) -> None:
        if self._grace_until_ms is None or read_ms - self._occupant_started_ms >= self._lease_ms:
            self._grace_until_ms = read_ms + self._lease_ms

    def has_sync_gap(self, now_ms: int) -> bool:
        """Whether an occupant may have accepted what no living instance knows and what has not expired."""
        return self._sync_gap_until_ms > now_ms

    def is_synced(self, now_ms: int) -> bool:
        """Whether all that is registered here is known, up to the age that the last message may have."""
        status = self.source_status(now_ms)
        return status is None or status.is_fresh

    def can_evict(self, now_ms: int) -> bool:
        """Whether it left the name a lease ago."""
        return self.left_ms is not None and now_ms - self.left_ms >= self._lease_ms

    def summary(self, now_ms: int) -> MemberSummary:
        """What peers get to know of it."""
        return MemberSummary(
            address=self.address,
            boot_id=self.boot_id,
            synced_ms_ago=0 if self.own else now_ms - self.synced_until_ms,
            synced=self.is_synced(now_ms),
            sync_gap=self.has_sync_gap(now_ms),
        )

    @property
    def answer_ends_ms(self) -> int | None:
        """Until when the last answer counts; ``None`` where there was none."""
        return None if self.answered_ms is None else self.answered_ms + ANSWER_MS

    def source_status(self, now_ms: int) -> SourceStatus | None:
        """Its status at ``now_ms``; ``None`` where it does not count."""
        if self.left_ms is not None:
            until_ms = self._sync_gap_until_ms
            if self.name_state is NameState.LEFT_UNSYNCED:
                until_ms = max(until_ms, self.left_ms + self._lease_ms)
            return self._stale_until(until_ms, now_ms, SourceReason.UNREACHABLE)
        balanced = self._stale_until(self._load_balancer.until_ms, now_ms, SourceReason.LOAD_BALANCER, BALANCED)
        if balanced is not None:
            return balanced
        if self.own:
            return None
        if self.answer_ends_ms is None or now_ms > self.answer_ends_ms:
            reason, detail = self._failure or (SourceReason.TIMEOUT, "It does not answer.")
            return self._status(SourceState.UNKNOWN if self.read_ms is None else SourceState.STALE, reason, detail)
        if self.state is MemberState.READ:
            fresh = SourceStatus(kind=SourceKind.PEER, name=self.address, fresh_until_ms=self.answer_ends_ms)
            return self._stale_until(self._sync_gap_until_ms, now_ms, SourceReason.WARMING_UP) or fresh
        until_ms = max(self._sync_gap_until_ms, self._grace_until_ms or self._sync_gap_until_ms)
        return self._stale_until(until_ms, now_ms, SourceReason.UNREACHABLE)

    def _stale_until(
        self, until_ms: int | None, now_ms: int, reason: SourceReason, detail: str = UNSYNCED
    ) -> SourceStatus | None:
        if until_ms is None or until_ms <= now_ms:
            return None
        return self._status(SourceState.STALE, reason, detail, until_ms)

    def _status(
        self, state: SourceState, reason: SourceReason, detail: str, clears_at_ms: int | None = None
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

    def check_invariants(self, now_ms: int) -> None:
        """Raise `AssertionError` where the member contradicts itself. The simulation calls it after every event."""
        broken = [rule for rule, holds in self._invariants(now_ms) if not holds]
        assert not broken, f"Member {self.address} at {now_ms}: not {'; not '.join(broken)}: {vars(self)}"

    def _invariants(self, now_ms: int) -> Iterator[tuple[str, bool]]:
        state, named, answered_ms, read_ms = self.state, self.left_ms is None, self.answered_ms, self.read_ms
        refused, lease_ms, grace_ms = state is MemberState.REFUSED, self._lease_ms, self._grace_until_ms
        yield "synced_from_ms <= synced_until_ms <= now", self.synced_from_ms <= self.synced_until_ms <= now_ms
        yield "answered_ms <= synced_until_ms", answered_ms is None or answered_ms <= self.synced_until_ms
        yield "answered unless unread", self.own or (answered_ms is None) == (state is MemberState.UNREAD)
        yield "read by its last answer", state is not MemberState.READ or read_ms == answered_ms
        adopted = answered_ms is None or answered_ms < self.synced_until_ms
        yield "without a boot id where it refused", adopted or (self.boot_id is None) == refused
        yield "own with the own boot id", self.own == (self.boot_id == self._own_boot_id)
        yield "read after its occupant started", read_ms is None or self._occupant_started_ms <= read_ms
        yield "a sync gap of one lease", self._sync_gap_until_ms <= self.synced_until_ms + lease_ms
        yield "a grace of one lease", grace_ms is None or (read_ms is not None and grace_ms <= read_ms + lease_ms)
        yield "a grace after a refusal", not refused or read_ms is None or grace_ms is not None
        yield "left_ms outside the name alone", named == (self.name_state is NameState.NAMED)
        status = self.source_status(now_ms)
        if status is None:
            yield "counting while in the name", not named or self.own or refused
        elif status.is_fresh:
            yield "fresh by a recent message", state is MemberState.READ and now_ms - self.synced_until_ms <= ANSWER_MS
            yield "fresh in the name without a sync gap", named and not self.has_sync_gap(now_ms)
        else:
            ends_ms = status.clears_at_ms
            yield "unknown until it is read", status.state is not SourceState.UNKNOWN or read_ms is None
            yield "stale for one lease at most", ends_ms is None or now_ms < ends_ms <= now_ms + lease_ms
            balanced = status.reason is SourceReason.LOAD_BALANCER
            yield "own, so not stale", not (self.own and named) or balanced


class LoadBalancerDetector:
    """Tells the boots of a load balancer from restarts: a boot never comes back once another has taken its address.

    The boots of a load balancer answer in turn until one alone has answered for a lease.
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._answers: dict[str, int] = {}
        self._last_boot_id: str | None = None
        self.until_ms: int | None = None

    def record_answer(self, boot_id: str, now_ms: int) -> None:
        """``boot_id`` answered."""
        another = boot_id != self._last_boot_id
        balanced = self.until_ms is not None and self.until_ms > now_ms
        if another and (boot_id in self._answers or balanced):
            self.until_ms = now_ms + self._lease_ms
        self._last_boot_id = boot_id
        self._answers[boot_id] = now_ms
        if len(self._answers) > BOOTS_LIMIT:
            del self._answers[min(self._answers, key=lambda each: self._answers[each])]
