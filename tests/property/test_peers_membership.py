"""Any events in any order leave a membership that does not contradict itself."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.source import SourceReason
from poolmuster.replication.member import Member, MemberState
from poolmuster.replication.membership import Membership
from poolmuster.replication.messages import MemberSummary, SyncSummary
from tests.support.variables import variable

EXAMPLES = int(variable("EXAMPLES", "120"))
POLICY = LeasePolicy(15_000, 5_000)
T0_MS = 1_000_000

addresses = st.sampled_from("abc")
boots = st.sampled_from(["me", "b1", "b2", "b3"])
delays_ms = st.sampled_from([0, 10, 400, 2_500, 20_000])
summaries = st.builds(
    MemberSummary,
    address=addresses,
    boot_id=st.one_of(st.none(), boots),
    synced_ms_ago=delays_ms,
    synced=st.just(True),
    sync_gap=st.booleans(),
)
events = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([10, 400, 1_100, 2_500, 5_000, 16_000])),
    st.tuples(st.just("pause"), st.sampled_from([1_500, 12_000])),
    st.tuples(st.just("resolve"), st.frozensets(addresses)),
    st.tuples(st.just("read"), addresses, boots, st.sampled_from([0, 1_000, 60_000]), delays_ms),
    st.tuples(st.just("read"), addresses, boots, st.sampled_from([0, 1_000, 60_000]), delays_ms),
    st.tuples(st.just("refuse"), addresses),
    st.tuples(st.just("fail"), addresses),
    st.tuples(st.just("adopt"), st.lists(summaries, max_size=3), delays_ms),
)


class Run:
    """A membership and its clock."""

    def __init__(self) -> None:
        self.now_ms = T0_MS
        self.membership = Membership(boot_id="me", names=("n",), policy=POLICY, now_ms=self.now_ms)
        self.membership.resolved("n", frozenset("ab"), self.now_ms, self.now_ms)
        self._synced: dict[Member, int] = {}

    def apply(self, kind: str, *facts: Any) -> None:
        made, now_ms = self.membership, self.now_ms
        if kind in ("wait", "pause"):
            self.now_ms += facts[0]
            if kind == "pause":
                made.paused(self.now_ms, facts[0])
        elif kind == "resolve":
            made.resolved("n", facts[0], now_ms, now_ms)
        elif kind == "read":
            address, boot_id, uptime_ms, delay_ms = facts
            made.read(address, boot_id, uptime_ms, max(T0_MS, now_ms - delay_ms))
        elif kind == "refuse":
            made.refused(facts[0], now_ms)
        elif kind == "fail":
            made.failed(facts[0], SourceReason.BAD_ANSWER, "Not JSON.")
        else:
            summary = SyncSummary(warmed_up=True, names_resolved=True, members=tuple(facts[0]))
            made.apply_summary(summary, max(T0_MS, now_ms - facts[1]), now_ms)

    def check(self) -> None:
        self.membership.check_invariants(self.now_ms)
        members = [self.membership.member(address) for address in self.membership.addresses]
        synced = {each: each.synced_until_ms for each in members if each and each.state is not MemberState.UNREAD}
        assert all(synced_ms >= self._synced.get(each, synced_ms) for each, synced_ms in synced.items())
        self._synced = synced


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None)
@given(happened=st.lists(events, max_size=30))
def test_no_events_break_an_invariant_or_lose_synced_time(happened: list[tuple[Any, ...]]) -> None:
    run = Run()
    run.check()
    for event in happened:
        run.apply(*event)
        run.check()
