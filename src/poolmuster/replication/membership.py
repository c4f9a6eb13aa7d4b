"""The membership: the instances behind the peers' names, and whether this instance's list is complete.

The list is complete when this instance is *warm*, the addresses of each name are known, and every member is synced
(`poolmuster.replication.member`). Warm means that nothing is missing from before the start. An instance is warm

- one lease after its start, after a pause longer than the slack, and after a name that could not be resolved for as
  long, or at the start; or
- when it merged the snapshot of a peer that was warm, knew the names, and had every member synced. For this instance's
  own address it is enough that the peer knew all that was registered there until this instance started.

For this list to be complete peers need not be warm: what a peer may lack, this instance has in its own members. The
snapshot of a complete peer also ends sync gaps, at any time.
"""

from collections.abc import Iterable

import msgspec

from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.warmup import Warmup
from poolmuster.replication.member import ANSWER_MS, GAP_MS, Member, MemberState
from poolmuster.replication.messages import MemberSummary, SyncSummary


class ResolvedName(msgspec.Struct):
    """The last good resolution of a name, which started at ``read_ms``, and the failure since."""

    addresses: frozenset[str] = frozenset()
    read_ms: int | None = None
    failure: str | None = None


class Membership:
    """All members. Times are monotonic."""

    member_type = Member

    def __init__(
        self, *, boot_id: str, names: tuple[str, ...], policy: LeasePolicy, now_ms: int, expect: int = 0
    ) -> None:
        self._boot_id = boot_id
        self._policy = policy
        self._expect = expect
        self._started_ms = now_ms
        self._names = {name: ResolvedName() for name in names}
        self._members: dict[str, Member] = {}
        self._warmup = Warmup(policy, now_ms)
        self._was_warm = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to read: those behind the names, and those that left them less than a lease ago."""
        return tuple(self._members)

    def member(self, address: str) -> Member | None:
        return self._members.get(address)

    def resolved(self, name: str, addresses: frozenset[str], started_ms: int, now_ms: int) -> None:
        """``name`` was resolved by a query at ``started_ms``. Without addresses there is no other instance."""
        before = self._names[name]
        from_ms = self._started_ms if before.read_ms is None else before.read_ms
        # A name is resolved once a second, so less than `ANSWER_MS` is no gap, however short the slack is.
        if started_ms - from_ms > (GAP_MS if before.read_ms is None else max(self._policy.slack_ms, ANSWER_MS)):
            # An instance may have come and gone unread, with all that was registered there.
            self._was_warm = self._was_warm or self.is_warm(from_ms)
            self._warmup.restart(started_ms)
        self._names[name] = ResolvedName(addresses, started_ms)
        for address in sorted(addresses - self._members.keys()):
            self._members[address] = self.member_type(address, from_ms, self._policy.duration_ms, self._boot_id)
        named = self._named()
        for address, member in list(self._members.items()):
            if address in named:
                member.rejoined_name()
            elif member.left_ms is None:
                member.left_name(now_ms)
            elif member.can_evict(now_ms):
                del self._members[address]

    def _named(self) -> frozenset[str]:
        return frozenset[str]().union(*(name.addresses for name in self._names.values()))

    def resolver_failed(self, name: str, detail: str) -> None:
        """``name`` could not be resolved; its last addresses stay."""
        self._names[name].failure = detail

    def read(self, address: str, boot_id: str, uptime_ms: int, as_of_ms: int) -> None:
        """``boot_id`` answered at ``address`` with all that was registered with it until ``as_of_ms``."""
        if (member := self._members.get(address)) is not None:
            member.read(boot_id, as_of_ms - uptime_ms, as_of_ms)

    def refused(self, address: str, now_ms: int) -> None:
        """A connection to ``address`` was refused."""
        if (member := self._members.get(address)) is not None:
            member.refused(now_ms)

    def failed(self, address: str, reason: SourceReason, detail: str) -> None:
        """Reading ``address`` failed in another way."""
        if (member := self._members.get(address)) is not None:
            member.failed(reason, detail)

    def paused(self, ended_ms: int, length_ms: int) -> None:
        """This process was stopped for ``length_ms``."""
        self._was_warm = self._was_warm or self.is_warm(ended_ms - length_ms)
        self._warmup.paused(ended_ms, length_ms)

    def is_warm(self, now_ms: int) -> bool:
        """Whether nothing is missing from before this instance's start, or its last long pause."""
        return self._warmup.is_warm(now_ms)

    def needs_full_sync(self, now_ms: int) -> bool:
        """Whether the snapshot of a complete peer would make this list complete sooner."""
        return not self.is_warm(now_ms) or any(member.has_sync_gap(now_ms) for member in self._members.values())

    def can_trust(self, summary: SyncSummary, as_of_ms: int) -> bool:
        """Whether the snapshot of a peer with this summary at ``as_of_ms`` makes this instance warm."""
        return (
            summary.warmed_up
            and summary.names_resolved
            and all(self._can_trust(member, as_of_ms) for member in summary.members)
        )

    def _can_trust(self, summary: MemberSummary, as_of_ms: int) -> bool:
        member = self._members.get(summary.address)
        if member is None or not member.own:
            return summary.synced
        if self._was_warm:
            # This very boot accepted all that was registered here since it was warm.
            return True
        gap_ms = self._started_ms - (as_of_ms - summary.synced_ms_ago)
        return not summary.sync_gap and (summary.boot_id == self._boot_id or gap_ms <= GAP_MS)

    def apply_summary(self, summary: SyncSummary, as_of_ms: int, now_ms: int) -> bool:
        """The snapshot of a peer with this summary at ``as_of_ms`` was merged. Returns whether it can be trusted."""
        if not self.can_trust(summary, as_of_ms):
            return False
        warming_up = not self.is_warm(now_ms)
        for each in summary.members:
            member = self._members.get(each.address)
            if member is not None and not member.own:
                member.adopt_sync_state(each.boot_id, as_of_ms - each.synced_ms_ago, warming_up=warming_up)
        self._warmup.warm_at_ms = min(self._warmup.warm_at_ms, now_ms)
        return True

    def summary(self, now_ms: int) -> SyncSummary:
        """How complete this list is, for peers."""
        return SyncSummary(
            warmed_up=self.is_warm(now_ms),
            names_resolved=all(self._name_status(name, now_ms).is_fresh for name in self._names),
            members=tuple(member.summary(now_ms) for member in self._members.values()),
        )

    def instances(self, now_ms: int) -> int:
        """The number of instances: this one and those that answer."""
        boots = {
            member.boot_id
            for member in self._members.values()
            if member.state is MemberState.READ
            and member.left_ms is None
            and member.answered_ms is not None
            and now_ms - member.answered_ms <= ANSWER_MS
        }
        return len(boots | {self._boot_id})

    def check_invariants(self, now_ms: int) -> None:
        """Raise `AssertionError` where the membership contradicts itself. The simulation calls it after every event."""
        for address, member in self._members.items():
            assert member.address == address, f"{member.address} stands as {address}"
            member.check_invariants(now_ms)
        in_name = {address for address, member in self._members.items() if member.left_ms is None}
        assert in_name == self._named(), f"members in the name: {in_name}, its addresses: {self._named()}"
        reads = [name.read_ms for name in self._names.values() if name.read_ms is not None]
        assert all(self._started_ms <= read_ms <= now_ms for read_ms in reads), f"{now_ms}: names resolved at {reads}"
        warm_at_ms, latest_ms = self._warmup.warm_at_ms, now_ms + self._policy.duration_ms
        assert self._started_ms <= warm_at_ms <= latest_ms, f"{now_ms}: warm at {warm_at_ms}, not within a lease"

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        """The status of this instance, of the names, and of the members that count. Pure."""
        members = [self._members[address] for address in sorted(self._members)]
        peers = [member.source_status(now_ms) for member in members]
        uncounted = [member for member, status in zip(members, peers, strict=True) if status is None]
        names = [self._name_status(name, now_ms) for name in self._names]
        return (self._own_status(uncounted, now_ms), *names, *(status for status in peers if status is not None))

    def _own_status(self, uncounted: Iterable[Member], now_ms: int) -> SourceStatus:
        if not self.is_warm(now_ms):
            return SourceStatus(
                kind=SourceKind.MEMORY,
                name="memory",
                state=SourceState.STALE,
                reason=SourceReason.WARMING_UP,
                detail="Pools that were live before may not have registered here yet.",
                clears_at_ms=self._warmup.warm_at_ms,
            )
        # A member that refuses counts again once its last refusal is too old: the list is complete no longer than that.
        ends_ms = [
            member.answer_ends_ms
            for member in uncounted
            if member.left_ms is None and not member.own and member.answer_ends_ms is not None
        ]
        return SourceStatus(kind=SourceKind.MEMORY, name="memory", fresh_until_ms=min(ends_ms, default=None))

    def _name_status(self, name: str, now_ms: int) -> SourceStatus:
        read_ms = self._names[name].read_ms
        state, reason, detail = SourceState.FRESH, None, None
        if read_ms is None or now_ms - read_ms > ANSWER_MS:
            state = SourceState.UNKNOWN if read_ms is None else SourceState.STALE
            reason, detail = SourceReason.DNS_FAILED, self._names[name].failure or "The resolver does not answer."
        elif (found := self.instances(now_ms)) < self._expect:
            state = SourceState.STALE
            reason, detail = SourceReason.PEERS_MISSING, f"{found} of {self._expect} instances are here."
        return SourceStatus(
            kind=SourceKind.DNS,
            name=name,
            state=state,
            reason=reason,
            detail=detail,
            fresh_until_ms=None if read_ms is None else read_ms + ANSWER_MS,
            last_good_ms=read_ms,
        )
