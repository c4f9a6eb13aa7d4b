"""One address behind the peers' name: each row of the module's table."""

import pytest

from poolmuster.model.source import SourceReason, SourceState
from poolmuster.replication.alternation import BOOTS_LIMIT
from poolmuster.replication.member import ANSWER_MS, GAP_MS, Member
from poolmuster.replication.messages import MemberSummary

LEASE_MS = 15_000
T0_MS = 1_000_000


@pytest.fixture
def account() -> Member:
    return Member("10.0.0.1:80", T0_MS, LEASE_MS, "me")


def shown(member: Member, now_ms: int) -> tuple[SourceState, SourceReason | None, int | None] | None:
    status = member.source_status(now_ms)
    if status is None:
        return None
    return status.state, status.reason, None if status.clears_at_ms is None else status.clears_at_ms - now_ms


def test_one_that_was_never_read_and_is_silent_is_unknown(account: Member) -> None:
    assert shown(account, T0_MS) == (SourceState.UNKNOWN, SourceReason.TIMEOUT, None)
    account.failed(SourceReason.FORBIDDEN, "No token.")
    assert shown(account, T0_MS) == (SourceState.UNKNOWN, SourceReason.FORBIDDEN, None)


def test_one_that_refuses_from_the_beginning_does_not_count(account: Member) -> None:
    account.refused(T0_MS + GAP_MS)
    assert account.source_status(T0_MS + GAP_MS) is None
    assert account.is_synced(T0_MS + GAP_MS)


def test_one_that_was_silent_before_it_refused_is_in_doubt_for_a_lease_from_then(account: Member) -> None:
    at_ms = T0_MS + GAP_MS + 1
    account.refused(at_ms)
    assert shown(account, at_ms) == (SourceState.STALE, SourceReason.UNREACHABLE, LEASE_MS)
    for later_ms in range(at_ms, at_ms + LEASE_MS, 1_000):
        account.refused(later_ms)
        assert account.source_status(later_ms) is not None
    account.refused(at_ms + LEASE_MS)
    assert account.source_status(at_ms + LEASE_MS) is None


def test_one_that_was_read_is_fresh_for_three_seconds_and_then_stale(account: Member) -> None:
    account.read("b", T0_MS - 50_000, T0_MS)
    assert shown(account, T0_MS + ANSWER_MS) == (SourceState.FRESH, None, None)
    assert shown(account, T0_MS + ANSWER_MS + 1) == (SourceState.STALE, SourceReason.TIMEOUT, None)
    account.failed(SourceReason.BAD_ANSWER, "Not JSON.")
    assert shown(account, T0_MS + ANSWER_MS + 1) == (SourceState.STALE, SourceReason.BAD_ANSWER, None)
    account.read("b", T0_MS - 50_000, T0_MS + 60_000)
    assert shown(account, T0_MS + 60_000) == (SourceState.FRESH, None, None)


@pytest.mark.parametrize(("gap_ms", "clears_in_ms"), [(GAP_MS, None), (GAP_MS + 1, LEASE_MS - 500)])
def test_a_successor_is_fresh_where_its_predecessor_was_heard_to_the_end(
    account: Member, gap_ms: int, clears_in_ms: int | None
) -> None:
    account.read("b1", T0_MS - 50_000, T0_MS)
    started_ms = T0_MS + gap_ms
    account.read("b2", started_ms, started_ms + 500)
    status = shown(account, started_ms + 500)
    assert status is not None
    assert status[2] == clears_in_ms
    assert account.has_sync_gap(started_ms + 500) is (clears_in_ms is not None)
    assert shown(account, started_ms + 500 + LEASE_MS - 500) != (SourceState.FRESH, None, None)
    account.read("b2", started_ms, started_ms + LEASE_MS)
    assert shown(account, started_ms + LEASE_MS) == (SourceState.FRESH, None, None)


def test_one_that_dies_is_missed_for_a_lease_from_its_last_word(account: Member) -> None:
    account.read("b", T0_MS - 50_000, T0_MS)
    account.refused(T0_MS + 500)
    expected = (SourceState.STALE, SourceReason.UNREACHABLE, LEASE_MS - 500)
    assert shown(account, T0_MS + 500) == expected
    for later_ms in range(T0_MS + 500, T0_MS + LEASE_MS, 500):
        account.refused(later_ms)
        assert account.source_status(later_ms) is not None
    account.refused(T0_MS + LEASE_MS)
    assert account.source_status(T0_MS + LEASE_MS) is None


def test_one_that_dies_again_before_it_lived_for_a_lease_is_not_missed_again(account: Member) -> None:
    account.read("b1", T0_MS - 50_000, T0_MS)
    now_ms = T0_MS
    for n in range(20):
        account.refused(now_ms + 500)
        account.read(f"c{n}", now_ms + 600, now_ms + 1_000)
        now_ms += 1_000
    account.refused(now_ms + 500)
    assert account.source_status(now_ms + 500) is None
    account.read("d", now_ms + 600, now_ms + 700)
    account.read("d", now_ms + 600, now_ms + 600 + LEASE_MS)
    account.refused(now_ms + 700 + LEASE_MS)
    assert account.source_status(now_ms + 700 + LEASE_MS) is not None


def test_one_that_refused_and_is_silent_since_may_have_a_new_occupant(account: Member) -> None:
    account.read("b", T0_MS - 50_000, T0_MS)
    account.refused(T0_MS + 500)
    at_ms = T0_MS + 500 + ANSWER_MS + 1
    assert shown(account, at_ms) == (SourceState.STALE, SourceReason.TIMEOUT, None)
    assert not account.is_synced(at_ms)


def test_one_that_left_the_name_accounted_for_does_not_count(account: Member) -> None:
    account.read("b", T0_MS - 50_000, T0_MS)
    account.left_name(T0_MS + GAP_MS)
    assert account.source_status(T0_MS + GAP_MS) is None
    assert not account.is_forgettable(T0_MS + GAP_MS + LEASE_MS - 1)
    assert account.is_forgettable(T0_MS + GAP_MS + LEASE_MS)


def test_one_that_left_the_name_unread_counts_for_a_lease_unless_it_is_read_yet(account: Member) -> None:
    account.read("b", T0_MS - 50_000, T0_MS)
    left_ms = T0_MS + GAP_MS + 1
    account.left_name(left_ms)
    assert shown(account, left_ms) == (SourceState.STALE, SourceReason.UNREACHABLE, LEASE_MS)
    assert account.source_status(left_ms + LEASE_MS) is None
    account.read("b", T0_MS - 50_000, left_ms + 1_000)
    assert account.source_status(left_ms + 1_000) is None
    account.rejoined_name()
    assert shown(account, left_ms + 1_000) == (SourceState.FRESH, None, None)


def test_this_instance_itself_does_not_count(account: Member) -> None:
    account.read("me", T0_MS, T0_MS + 100)
    assert account.source_status(T0_MS + 60_000) is None
    account.left_name(T0_MS + 60_000)
    assert account.source_status(T0_MS + 60_000) is None
    assert account.summary(T0_MS + 60_000) == MemberSummary(
        address="10.0.0.1:80", boot_id="me", synced_ms_ago=0, synced=True
    )


def test_boots_that_take_turns_are_a_load_balancers_until_one_alone_answers_for_a_lease(account: Member) -> None:
    now_ms = T0_MS
    for boot_id in ("b1", "b2", "b1", "b3"):
        account.read(boot_id, T0_MS - 50_000, now_ms)
        now_ms += 1_000
    assert shown(account, now_ms) == (SourceState.STALE, SourceReason.LOAD_BALANCER, LEASE_MS - 1_000)
    for _ in range(LEASE_MS // 1_000):
        account.read("b3", T0_MS - 50_000, now_ms)
        now_ms += 1_000
    assert shown(account, now_ms) == (SourceState.FRESH, None, None)


def test_restarts_and_a_boot_that_comes_back_after_a_refusal_are_no_turns(account: Member) -> None:
    now_ms = T0_MS
    for n in range(2 * BOOTS_LIMIT):
        account.read(f"b{n}", now_ms - 100, now_ms)
        account.refused(now_ms + 100)
        account.read(f"b{n}", now_ms - 100, now_ms + 200)
        now_ms += 1_000
    assert shown(account, now_ms) == (SourceState.FRESH, None, None)


def row(boot_id: str) -> MemberSummary:
    return MemberSummary(address="10.0.0.1:80", boot_id=boot_id, synced_ms_ago=0, synced=True)


def test_a_peer_that_knew_the_predecessor_to_its_end_takes_the_doubt_away(account: Member) -> None:
    account.read("b1", T0_MS - 50_000, T0_MS)
    account.read("b2", T0_MS + 10_000, T0_MS + 10_500)
    account.adopt_sync_state(row("b1"), T0_MS + 10_000 - GAP_MS - 1, for_the_past=False)
    assert account.has_sync_gap(T0_MS + 10_500)
    account.adopt_sync_state(row("b2"), T0_MS + 10_000 - GAP_MS, for_the_past=False)
    assert not account.has_sync_gap(T0_MS + 10_500)
    account.adopt_sync_state(row("b3"), T0_MS + 11_000, for_the_past=False)
    assert (account.synced_until_ms, account.boot_id) == (T0_MS + 11_000, "b3")


def test_for_the_past_one_that_was_not_read_is_known_as_far_as_the_peer_knew_it(account: Member) -> None:
    account.adopt_sync_state(row("b1"), T0_MS - 500, for_the_past=True)
    account.read("b1", T0_MS - 50_000, T0_MS + 60_000)
    assert shown(account, T0_MS + 60_000) == (SourceState.FRESH, None, None)


def test_for_the_past_a_gap_between_the_peers_knowledge_and_the_own_is_in_doubt(account: Member) -> None:
    account.read("b2", T0_MS - 100, T0_MS)
    account.adopt_sync_state(row("b1"), T0_MS - 100 - GAP_MS - 1, for_the_past=True)
    assert shown(account, T0_MS) == (SourceState.STALE, SourceReason.WARMING_UP, LEASE_MS - 100)
