"""The rule of completeness that comes to mind first, for comparison: the simulation shows where it errs.

Every address answered within 3 s and is itself warm; one that refuses and was not read for a lease, or ever, does not
count; one that left the name unread counts for a lease. An instance is warm a lease after its start, or when it merged
the snapshot of a peer that was complete, this address left out, and that had read this address within the last lease,
or never.
"""

from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.registry.source_status import SourceStatus
from poolmuster.replication.member import ANSWER_MS, Member, MemberState, NameState
from poolmuster.replication.membership import Membership
from poolmuster.replication.messages import MemberSummary, SyncSummary
from tests.support.peer_instance import LEASE_MS, NAME, POLICY


class FirstMember(Member):
    """One address under that rule; ``warm`` is whether its occupant was warm by its last message."""

    warm = False

    def source_status(self, now_ms: int) -> SourceStatus | None:
        stale = SourceStatus(
            kind=SourceKind.PEER, name=self.address, state=SourceState.STALE, reason=SourceReason.UNREACHABLE
        )
        if self.left_ms is not None:
            unread = self.name_state is NameState.LEFT_UNSYNCED
            return stale if unread and now_ms - self.left_ms < self._lease_ms else None
        if self.own:
            return None
        if self.answered_ms is None or now_ms - self.answered_ms > ANSWER_MS:
            return stale
        if self.state is MemberState.READ:
            return SourceStatus(kind=SourceKind.PEER, name=self.address) if self.warm else stale
        return None if self.read_ms is None or now_ms - self.read_ms > self._lease_ms else stale

    def summary(self, now_ms: int) -> MemberSummary:
        ms_ago = 0 if self.read_ms is None else now_ms - self.read_ms
        return MemberSummary(
            address=self.address, boot_id=self.boot_id, synced_ms_ago=ms_ago, synced=self.is_synced(now_ms)
        )


class FirstRule(Membership):
    """All addresses under that rule."""

    member_type = FirstMember

    def needs_full_sync(self, now_ms: int) -> bool:
        return not self.is_warm(now_ms)

    def _can_trust(self, summary: MemberSummary, as_of_ms: int) -> bool:
        member = self._members.get(summary.address)
        return summary.synced_ms_ago <= LEASE_MS if member is not None and member.own else summary.synced

    def receive_summary(self, address: str, summary: SyncSummary) -> None:
        member = self._members.get(address)
        assert isinstance(member, FirstMember)
        member.warm = summary.warmed_up

    def check_invariants(self, now_ms: int) -> None:
        """They are of the other rule."""


def first_rule(boot_id: str, now_ms: int) -> Membership:
    return FirstRule(boot_id=boot_id, names=(NAME,), policy=POLICY, now_ms=now_ms)
