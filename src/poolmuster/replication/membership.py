"""The circle: the instances behind the peers' names, and whether what they say makes the list complete.

The list is complete when this instance is *warm*, the addresses of each name are known, and all that is registered at
each address is known (`poolmuster.replication.member`). Warm means that nothing is missing from before its start. It
is warm

- when a lease has passed since its start, since a pause longer than the slack, and since a name could not be read for
  as long, or at the start; or
- when it took the whole list of a peer that was warm, knew the names, and was sure of every address; of this
  instance's own address it only has to have known all that was registered there until this instance started.

Peers need not be warm for this list to be complete, only for theirs: what they could have missed, this instance has in
its own accounts of their addresses. A complete peer's whole list also ends doubt, at any time.
"""

from collections.abc import Iterable

import msgspec

from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.registry.source_status import SourceStatus
from poolmuster.replication.member import ANSWER_MS, GAP_MS, Member, MemberStatus
from poolmuster.replication.messages import MemberSummary, SyncSummary


class ResolvedName(msgspec.Struct):
    """One name. ``read_ms`` is the start of its last good resolution."""

    addresses: frozenset[str] = frozenset()
    read_ms: int | None = None
    problem: str | None = None


class Membership:
    """All addresses. Times are monotonic but for ``wall_ms``, which only shows in sources."""

    member_type = Member

    def __init__(
        self, *, boot_id: str, names: tuple[str, ...], lease_ms: int, slack_ms: int, now_ms: int, expect: int = 0
    ) -> None:
        self._boot_id = boot_id
        self._lease_ms = lease_ms
        self._slack_ms = slack_ms
        self._expect = expect
        self._started_ms = now_ms
        self._names = {name: ResolvedName() for name in names}
        self._members: dict[str, Member] = {}
        self._warm_at_ms = now_ms + lease_ms
        self._was_warm = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to read: those behind the names, and those that left them lately."""
        return tuple(self._members)

    def member(self, address: str) -> Member | None:
        return self._members.get(address)

    def resolved(self, name: str, addresses: frozenset[str], started_ms: int, now_ms: int) -> None:
        """``name`` was resolved, by a question asked at ``started_ms``; no addresses means nobody else is there."""
        known = self._names[name]
        from_ms = self._started_ms if known.read_ms is None else known.read_ms
        # It is asked once a second, so however short the slack is, less than what a name may be silent is no gap.
        if started_ms - from_ms > (GAP_MS if known.read_ms is None else max(self._slack_ms, ANSWER_MS)):
            # An instance may have come and gone unseen, with all that was registered there.
            self._restart_warmup(from_ms, started_ms)
        self._names[name] = ResolvedName(addresses, started_ms)
        for address in sorted(addresses - self._members.keys()):
            self._members[address] = self.member_type(address, from_ms, self._lease_ms, self._boot_id)
        named = frozenset[str]().union(*(each.addresses for each in self._names.values()))
        for address, account in list(self._members.items()):
            if address in named:
                account.rejoined_name()
            elif account.left_ms is None:
                account.left_name(now_ms)
            elif account.is_forgettable(now_ms):
                del self._members[address]

    def resolver_failed(self, name: str, detail: str) -> None:
        """``name`` could not be resolved; what it said last holds on."""
        self._names[name].problem = detail

    def read(self, address: str, boot_id: str, up_ms: int, said_ms: int) -> None:
        """``boot_id`` answered at ``address`` and said at ``said_ms`` all that was registered with it until then."""
        if (account := self._members.get(address)) is not None:
            account.read(boot_id, said_ms - up_ms, said_ms)

    def refused(self, address: str, now_ms: int) -> None:
        """A connection to ``address`` was refused."""
        if (account := self._members.get(address)) is not None:
            account.refused(now_ms)

    def failed(self, address: str, reason: SourceReason, detail: str) -> None:
        """Reading ``address`` failed in another way."""
        if (account := self._members.get(address)) is not None:
            account.failed(reason, detail)

    def paused(self, ended_ms: int, length_ms: int) -> None:
        """This process was stopped."""
        if length_ms > self._slack_ms:
            self._restart_warmup(ended_ms - length_ms, ended_ms)
        elif not self.is_warm(ended_ms - length_ms):
            self._warm_at_ms += length_ms

    def _restart_warmup(self, since_ms: int, until_ms: int) -> None:
        self._was_warm = self._was_warm or self.is_warm(since_ms)
        self._warm_at_ms = max(self._warm_at_ms, until_ms + self._lease_ms)

    def is_warm(self, now_ms: int) -> bool:
        """Whether nothing is missing from before this instance's start, or its last long pause."""
        return now_ms >= self._warm_at_ms

    def needs_full_sync(self, now_ms: int) -> bool:
        """Whether there is something that a complete peer's whole list would make good."""
        return not self.is_warm(now_ms) or any(account.has_sync_gap(now_ms) for account in self._members.values())

    def can_trust(self, statement: SyncSummary, said_ms: int) -> bool:
        """Whether a peer that said this at ``said_ms`` can be taken at its word, once its whole list was merged."""
        return (
            statement.warmed_up
            and statement.names_resolved
            and all(self._can_trust(row, said_ms) for row in statement.members)
        )

    def apply_summary(self, statement: SyncSummary, said_ms: int, now_ms: int) -> bool:
        """Take a peer at its word, whose whole list of ``said_ms`` was merged. Returns whether it was good enough."""
        if not self.can_trust(statement, said_ms):
            return False
        warm = self.is_warm(now_ms)
        for row in statement.members:
            account = self._members.get(row.address)
            if account is not None and not account.own:
                account.adopt_sync_state(row, said_ms - row.synced_ms_ago, for_the_past=not warm)
        self._warm_at_ms = min(self._warm_at_ms, now_ms)
        return True

    def _can_trust(self, row: MemberSummary, said_ms: int) -> bool:
        account = self._members.get(row.address)
        if account is None or not account.own:
            return row.synced
        if self._was_warm:
            # This very boot took all that was registered here since it was warm.
            return True
        unheard_ms = self._started_ms - (said_ms - row.synced_ms_ago)
        return not row.sync_gap and (row.boot_id == self._boot_id or unheard_ms <= GAP_MS)

    def summary(self, now_ms: int) -> SyncSummary:
        """What others are told."""
        return SyncSummary(
            warmed_up=self.is_warm(now_ms),
            names_resolved=all(self._name_problem(name, now_ms) is None for name in self._names),
            members=tuple(account.summary(now_ms) for account in self._members.values()),
        )

    def instances(self, now_ms: int) -> int:
        """How many instances there are, this one and those that answer."""
        boots = {
            account.boot_id
            for account in self._members.values()
            if account.status is MemberStatus.READ
            and account.left_ms is None
            and account.answered_ms is not None
            and now_ms - account.answered_ms <= ANSWER_MS
        }
        return len(boots | {self._boot_id})

    def _name_problem(self, name: str, now_ms: int) -> tuple[SourceState, SourceReason, str] | None:
        known = self._names[name]
        if known.read_ms is None or now_ms - known.read_ms > ANSWER_MS:
            state = SourceState.UNKNOWN if known.read_ms is None else SourceState.STALE
            return state, SourceReason.DNS_FAILED, known.problem or "The resolver does not answer."
        if (found := self.instances(now_ms)) < self._expect:
            return SourceState.STALE, SourceReason.PEERS_MISSING, f"{found} of {self._expect} instances are here."
        return None

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        """The status of this instance, of the names, and of the addresses that count. Pure."""
        members = [self._members[address] for address in sorted(self._members)]
        peers = {member.address: member.source_status(now_ms) for member in members}
        found = [self._memory_status(now_ms, (member for member in members if peers[member.address] is None))]
        for name, resolved in self._names.items():
            state, reason, detail = self._name_problem(name, now_ms) or (SourceState.FRESH, None, None)
            found.append(
                SourceStatus(
                    kind=SourceKind.DNS,
                    name=name,
                    state=state,
                    reason=reason,
                    detail=detail,
                    fresh_until_ms=None if resolved.read_ms is None else resolved.read_ms + ANSWER_MS,
                    last_good_ms=resolved.read_ms,
                )
            )
        return (*found, *(status for status in peers.values() if status is not None))

    def _memory_status(self, now_ms: int, not_counting: Iterable[Member]) -> SourceStatus:
        if not self.is_warm(now_ms):
            return SourceStatus(
                kind=SourceKind.MEMORY,
                name="memory",
                state=SourceState.STALE,
                reason=SourceReason.WARMING_UP,
                detail="Pools that were live before may not have registered here yet.",
                clears_at_ms=self._warm_at_ms,
            )
        # An address that does not count begins to when it has been silent for too long: until then this holds.
        ends_ms = [
            member.silent_after_ms
            for member in not_counting
            if member.left_ms is None and not member.own and member.silent_after_ms is not None
        ]
        return SourceStatus(kind=SourceKind.MEMORY, name="memory", fresh_until_ms=min(ends_ms, default=None))
