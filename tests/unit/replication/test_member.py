"""One member: each row of the module's table, its transitions and its invariants."""

import pytest

from poolmuster.model.source import SourceReason, SourceState
from poolmuster.replication.member import ANSWER_MS, BOOTS_LIMIT, GAP_MS, Member, MemberState, NameState
from poolmuster.replication.messages import MemberSummary

LEASE_MS = 15_000
T0_MS = 1_000_000


@pytest.fixture
def member() -> Member:
    return Member("10.0.0.1:80", T0_MS, LEASE_MS, "me")


def shown(member: Member, now_ms: int) -> tuple[SourceState, SourceReason | None, int | None] | None:
    status = member.source_status(now_ms)
    if status is None:
        return None
    return status.state, status.reason, None if status.clears_at_ms is None else status.clears_at_ms - now_ms


def test_a_member_that_never_answered_is_unknown(member: Member) -> None:
    assert shown(member, T0_MS) == (SourceState.UNKNOWN, SourceReason.TIMEOUT, None)
    member.failed(SourceReason.FORBIDDEN, "No token.")
    assert shown(member, T0_MS) == (SourceState.UNKNOWN, SourceReason.FORBIDDEN, None)


def test_a_member_that_refuses_from_the_beginning_does_not_count(member: Member) -> None:
    member.refused(T0_MS + GAP_MS)
    assert member.source_status(T0_MS + GAP_MS) is None
    assert member.is_synced(T0_MS + GAP_MS)


def test_a_member_that_did_not_answer_before_it_refused_has_a_sync_gap_for_a_lease_from_then(member: Member) -> None:
    at_ms = T0_MS + GAP_MS + 1
    member.refused(at_ms)
    assert shown(member, at_ms) == (SourceState.STALE, SourceReason.UNREACHABLE, LEASE_MS)
    for later_ms in range(at_ms, at_ms + LEASE_MS, 1_000):
        member.refused(later_ms)
        assert member.source_status(later_ms) is not None
    member.refused(at_ms + LEASE_MS)
    assert member.source_status(at_ms + LEASE_MS) is None


def test_a_member_that_was_read_is_fresh_for_three_seconds_and_then_stale(member: Member) -> None:
    member.read("b", T0_MS - 50_000, T0_MS)
    assert shown(member, T0_MS + ANSWER_MS) == (SourceState.FRESH, None, None)
    assert shown(member, T0_MS + ANSWER_MS + 1) == (SourceState.STALE, SourceReason.TIMEOUT, None)
    member.failed(SourceReason.BAD_ANSWER, "Not JSON.")
    assert shown(member, T0_MS + ANSWER_MS + 1) == (SourceState.STALE, SourceReason.BAD_ANSWER, None)
    member.read("b", T0_MS - 50_000, T0_MS + 60_000)
    assert shown(member, T0_MS + 60_000) == (SourceState.FRESH, None, None)


@pytest.mark.parametrize(("gap_ms", "clears_in_ms"), [(GAP_MS, None), (GAP_MS + 1, LEASE_MS - 500)])
def test_a_successor_is_fresh_where_its_predecessor_was_read_to_the_end(
    member: Member, gap_ms: int, clears_in_ms: int | None
) -> None:
    member.read("b1", T0_MS - 50_000, T0_MS)
    started_ms = T0_MS + gap_ms
    member.read("b2", started_ms, started_ms + 500)
    status = shown(member, started_ms + 500)
    assert status is not None
    assert status[2] == clears_in_ms
    assert member.has_sync_gap(started_ms + 500) is (clears_in_ms is not None)
    assert shown(member, started_ms + 500 + LEASE_MS - 500) != (SourceState.FRESH, None, None)
    member.read("b2", started_ms, started_ms + LEASE_MS)
    assert shown(member, started_ms + LEASE_MS) == (SourceState.FRESH, None, None)


def test_a_member_that_dies_is_stale_for_a_lease_from_its_last_message(member: Member) -> None:
    member.read("b", T0_MS - 50_000, T0_MS)
    member.refused(T0_MS + 500)
    assert (member.state, member.boot_id) == (MemberState.REFUSED, None)
    expected = (SourceState.STALE, SourceReason.UNREACHABLE, LEASE_MS - 500)
    assert shown(member, T0_MS + 500) == expected
    for later_ms in range(T0_MS + 500, T0_MS + LEASE_MS, 500):
        member.refused(later_ms)
        assert member.source_status(later_ms) is not None
    member.refused(T0_MS + LEASE_MS)
    assert member.source_status(T0_MS + LEASE_MS) is None


def test_a_member_that_dies_again_before_it_lived_for_a_lease_is_not_stale_again(member: Member) -> None:
    member.read("b1", T0_MS - 50_000, T0_MS)
    now_ms = T0_MS
    for n in range(20):
        member.refused(now_ms + 500)
        member.read(f"c{n}", now_ms + 600, now_ms + 1_000)
        now_ms += 1_000
    member.refused(now_ms + 500)
    assert member.source_status(now_ms + 500) is None
    member.read("d", now_ms + 600, now_ms + 700)
    member.read("d", now_ms + 600, now_ms + 600 + LEASE_MS)
    member.refused(now_ms + 700 + LEASE_MS)
    assert member.source_status(now_ms + 700 + LEASE_MS) is not None


def test_a_member_that_refused_and_does_not_answer_since_may_have_a_new_occupant(member: Member) -> None:
    member.read("b", T0_MS - 50_000, T0_MS)
    member.refused(T0_MS + 500)
    at_ms = T0_MS + 500 + ANSWER_MS + 1
    assert shown(member, at_ms) == (SourceState.STALE, SourceReason.TIMEOUT, None)
    assert not member.is_synced(at_ms)


def test_a_member_that_left_the_name_synced_does_not_count(member: Member) -> None:
    member.read("b", T0_MS - 50_000, T0_MS)
    member.left_name(T0_MS + GAP_MS)
    assert member.source_status(T0_MS + GAP_MS) is None
    assert not member.can_evict(T0_MS + GAP_MS + LEASE_MS - 1)
    assert member.can_evict(T0_MS + GAP_MS + LEASE_MS)


def test_a_member_that_left_the_name_unsynced_is_stale_for_a_lease_or_until_it_is_read(member: Member) -> None:
    member.read("b", T0_MS - 50_000, T0_MS)
    left_ms = T0_MS + GAP_MS + 1
    member.left_name(left_ms)
    assert shown(member, left_ms) == (SourceState.STALE, SourceReason.UNREACHABLE, LEASE_MS)
    assert member.source_status(left_ms + LEASE_MS) is None
    member.read("b", T0_MS - 50_000, left_ms + 1_000)
    assert member.source_status(left_ms + 1_000) is None
    member.rejoined_name()
    assert shown(member, left_ms + 1_000) == (SourceState.FRESH, None, None)


def test_this_instance_itself_does_not_count(member: Member) -> None:
    member.read("me", T0_MS, T0_MS + 100)
    assert member.source_status(T0_MS + 60_000) is None
    member.left_name(T0_MS + 60_000)
    assert member.source_status(T0_MS + 60_000) is None
    assert member.summary(T0_MS + 60_000) == MemberSummary(
        address="10.0.0.1:80", boot_id="me", synced_ms_ago=0, synced=True
    )


def test_boots_that_answer_in_turn_are_a_load_balancers_until_one_alone_answers_for_a_lease(member: Member) -> None:
    now_ms = T0_MS
    for boot_id in ("b1", "b2", "b1", "b3"):
        member.read(boot_id, T0_MS - 50_000, now_ms)
        now_ms += 1_000
    assert shown(member, now_ms) == (SourceState.STALE, SourceReason.LOAD_BALANCER, LEASE_MS - 1_000)
    for _ in range(LEASE_MS // 1_000):
        member.read("b3", T0_MS - 50_000, now_ms)
        now_ms += 1_000
    assert shown(member, now_ms) == (SourceState.FRESH, None, None)


def test_restarts_and_a_boot_that_answers_again_after_a_refusal_are_no_load_balancer(member: Member) -> None:
    now_ms = T0_MS
    for n in range(2 * BOOTS_LIMIT):
        member.read(f"b{n}", now_ms - 100, now_ms)
        member.refused(now_ms + 100)
        member.read(f"b{n}", now_ms - 100, now_ms + 200)
        now_ms += 1_000
    assert shown(member, now_ms) == (SourceState.FRESH, None, None)


def test_a_peer_that_was_synced_up_to_the_end_of_the_predecessor_ends_the_sync_gap(member: Member) -> None:
    member.read("b1", T0_MS - 50_000, T0_MS)
    member.read("b2", T0_MS + 10_000, T0_MS + 10_500)
    member.adopt_sync_state("b1", T0_MS + 10_000 - GAP_MS - 1, warming_up=False)
    assert member.has_sync_gap(T0_MS + 10_500)
    member.adopt_sync_state("b2", T0_MS + 10_000 - GAP_MS, warming_up=False)
    assert not member.has_sync_gap(T0_MS + 10_500)
    member.adopt_sync_state("b3", T0_MS + 11_000, warming_up=False)
    assert (member.synced_until_ms, member.boot_id) == (T0_MS + 11_000, "b3")


def test_while_warming_up_an_unread_member_is_synced_as_far_as_the_peer_was(member: Member) -> None:
    member.adopt_sync_state("b1", T0_MS - 500, warming_up=True)
    member.read("b1", T0_MS - 50_000, T0_MS + 60_000)
    assert shown(member, T0_MS + 60_000) == (SourceState.FRESH, None, None)


def test_while_warming_up_time_between_the_peers_sync_and_the_own_is_a_sync_gap(member: Member) -> None:
    member.read("b2", T0_MS - 100, T0_MS)
    member.adopt_sync_state("b1", T0_MS - 100 - GAP_MS - 1, warming_up=True)
    assert shown(member, T0_MS) == (SourceState.STALE, SourceReason.WARMING_UP, LEASE_MS - 100)


def test_a_message_that_arrives_late_lessens_nothing_that_is_known(member: Member) -> None:
    member.read("b", T0_MS - 50_000, T0_MS + 1_000)
    member.read("b", T0_MS - 50_000, T0_MS + 400)
    assert (member.synced_until_ms, member.answered_ms, member.read_ms) == (T0_MS + 1_000,) * 3
    member.refused(T0_MS + 2_000)
    member.read("b", T0_MS - 50_000, T0_MS + 1_500)
    assert (member.synced_until_ms, member.answered_ms, member.read_ms) == (T0_MS + 2_000,) * 3


@pytest.mark.parametrize(
    ("field", "wrong", "rule"),
    [
        ("synced_from_ms", T0_MS + 9_000, "synced_from_ms <= synced_until_ms <= now"),
        ("synced_until_ms", T0_MS + 1_001, "synced_until_ms <= now"),
        ("answered_ms", T0_MS + 501, "answered_ms <= synced_until_ms"),
        ("state", MemberState.UNREAD, "answered unless unread"),
        ("state", MemberState.OWN, "own with the own boot id"),
        ("state", MemberState.REFUSED, "without a boot id where it refused"),
        ("read_ms", None, "read by its last answer"),
        ("boot_id", None, "without a boot id where it refused"),
        ("name_state", NameState.LEFT, "left_ms outside the name alone"),
        ("_sync_gap_until_ms", T0_MS + 500 + LEASE_MS + 1, "a sync gap of one lease"),
        ("_grace_until_ms", T0_MS + 500 + LEASE_MS + 1, "a grace of one lease"),
    ],
)
def test_a_contradiction_is_found(member: Member, field: str, wrong: object, rule: str) -> None:
    member.read("b", T0_MS - 50_000, T0_MS + 500)
    member.check_invariants(T0_MS + 1_000)
    setattr(member, field, wrong)
    with pytest.raises(AssertionError, match=f"Member .* not .*{rule}"):
        member.check_invariants(T0_MS + 1_000)
