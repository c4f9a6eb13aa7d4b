"""When an instance is warm, which names are resolved, and which peers are trusted."""

from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.replication.member import ANSWER_MS, GAP_MS
from poolmuster.replication.membership import Membership
from poolmuster.replication.messages import MemberSummary, SyncSummary

LEASE_MS = 15_000
SLACK_MS = 10_000
POLICY = LeasePolicy(LEASE_MS, LEASE_MS - SLACK_MS)
T0_MS = 1_000_000
A, B = "10.0.0.1:80", "10.0.0.2:80"


def membership(*addresses: str, expect: int = 0) -> Membership:
    made = Membership(boot_id="me", names=("n",), policy=POLICY, now_ms=T0_MS, expect=expect)
    made.resolved("n", frozenset(addresses), T0_MS, T0_MS)
    return made


def shown(made: Membership, now_ms: int) -> list[tuple[str, SourceState, SourceReason | None]]:
    return [(each.name, each.state, each.reason) for each in made.statuses(now_ms)]


def resolve(made: Membership, now_ms: int, *addresses: str) -> None:
    made.resolved("n", frozenset(addresses), now_ms, now_ms)


def test_an_instance_that_resolves_only_itself_is_a_healthy_cluster_of_one() -> None:
    made = membership(A)
    made.read(A, "me", 0, T0_MS)
    assert shown(made, T0_MS) == [
        ("memory", SourceState.STALE, SourceReason.WARMING_UP),
        ("n", SourceState.FRESH, None),
    ]
    for late_ms in range(0, LEASE_MS + 1, 1_000):
        resolve(made, T0_MS + late_ms, A)
    assert all(each.is_fresh for each in made.statuses(T0_MS + LEASE_MS))


def test_no_records_means_no_other_instance() -> None:
    made = membership()
    for late_ms in range(0, LEASE_MS + 1, 1_000):
        resolve(made, T0_MS + late_ms)
    assert all(each.is_fresh for each in made.statuses(T0_MS + LEASE_MS))


def test_a_stale_peer_has_the_time_of_its_last_good_read() -> None:
    made = membership(A)
    made.read(A, "b", 50_000, T0_MS)
    assert made.statuses(T0_MS)[-1].fresh_until_ms == T0_MS + ANSWER_MS
    later_ms = T0_MS + ANSWER_MS + 500
    resolve(made, later_ms, A)
    peer = made.statuses(later_ms)[-1]
    assert (peer.kind, peer.name, peer.state) == (SourceKind.PEER, A, SourceState.STALE)
    assert peer.last_good_ms == T0_MS


def test_an_address_that_does_not_count_bounds_the_freshness_of_the_list() -> None:
    made = membership(A, B)
    made.read(A, "me", 0, T0_MS)
    for late_ms in range(0, LEASE_MS + 1, 1_000):
        resolve(made, T0_MS + late_ms, A, B)
        made.refused(B, T0_MS + late_ms)
    memory, *others = made.statuses(T0_MS + LEASE_MS)
    assert (memory.state, memory.fresh_until_ms) == (SourceState.FRESH, T0_MS + LEASE_MS + ANSWER_MS)
    assert B not in [each.name for each in others]
    assert made.statuses(T0_MS + LEASE_MS + ANSWER_MS + 1)[-1].name == B


def test_a_name_that_was_never_resolved_is_unknown_and_later_stale() -> None:
    made = Membership(boot_id="me", names=("n",), policy=POLICY, now_ms=T0_MS)
    assert shown(made, T0_MS)[1] == ("n", SourceState.UNKNOWN, SourceReason.DNS_FAILED)
    resolve(made, T0_MS)
    made.resolver_failed("n", "It refuses.")
    late_ms = T0_MS + ANSWER_MS + 1
    assert shown(made, late_ms)[1] == ("n", SourceState.STALE, SourceReason.DNS_FAILED)
    assert not made.summary(late_ms).names_resolved


def test_a_name_that_is_first_resolved_late_starts_the_warm_up_then() -> None:
    made = Membership(boot_id="me", names=("n",), policy=POLICY, now_ms=T0_MS)
    resolve(made, T0_MS + 20_000)
    assert not made.is_warm(T0_MS + 20_000 + LEASE_MS - 1)
    assert made.is_warm(T0_MS + 20_000 + LEASE_MS)


def test_fewer_instances_than_expected_are_missing() -> None:
    made = membership(A, B, expect=3)
    made.read(A, "b", 50_000, T0_MS)
    assert shown(made, T0_MS)[1] == ("n", SourceState.STALE, SourceReason.PEERS_MISSING)
    made.read(B, "c", 50_000, T0_MS)
    assert shown(made, T0_MS)[1] == ("n", SourceState.FRESH, None)
    made.read(B, "b", 50_000, T0_MS)
    assert made.instances(T0_MS) == 2


def test_a_short_pause_extends_the_warm_up_and_a_long_one_restarts_it() -> None:
    made = membership()
    made.paused(T0_MS + 6_000, 5_000)
    assert not made.is_warm(T0_MS + LEASE_MS + 4_999)
    warm_ms = T0_MS + LEASE_MS + 5_000
    assert made.is_warm(warm_ms)
    made.paused(warm_ms + 6_000, 5_000)
    assert made.is_warm(warm_ms + 6_000)
    made.paused(warm_ms + 20_000, SLACK_MS + 1)
    assert not made.is_warm(warm_ms + 20_000 + LEASE_MS - 1)


def test_events_of_an_address_that_was_evicted_are_dropped() -> None:
    made = membership(A)
    for _ in range(2):
        resolve(made, T0_MS + 1_000)
    assert A in made.addresses
    resolve(made, T0_MS + 1_000 + LEASE_MS)
    assert A not in made.addresses
    made.read(A, "b", 0, T0_MS)
    made.refused(A, T0_MS)
    made.failed(A, SourceReason.TIMEOUT, "It is late.")
    assert made.member(A) is None


def test_an_address_that_leaves_and_returns_counts_again() -> None:
    made = membership(A)
    made.refused(A, T0_MS)
    resolve(made, T0_MS + 1_000)
    resolve(made, T0_MS + 2_000, A)
    member = made.member(A)
    assert member is not None
    assert member.left_ms is None


def own(boot_id: str | None = None, ms_ago: int = 0, *, sync_gap: bool = False) -> MemberSummary:
    return MemberSummary(address=A, boot_id=boot_id, synced_ms_ago=ms_ago, synced=False, sync_gap=sync_gap)


def apply(made: Membership, *members: MemberSummary, warm: bool = True, resolved: bool = True) -> bool:
    made.read(A, "me", 0, T0_MS)
    return made.apply_summary(SyncSummary(warmed_up=warm, names_resolved=resolved, members=members), T0_MS, T0_MS)


def test_the_snapshot_of_a_complete_peer_ends_the_warm_up_this_instances_address_left_out() -> None:
    made = membership(A, B)
    peer = MemberSummary(address=B, boot_id="b", synced_ms_ago=0, synced=True)
    elsewhere = MemberSummary(address="10.9.9.9:80", boot_id="x", synced_ms_ago=0, synced=True)
    assert made.needs_full_sync(T0_MS)
    assert apply(made, peer, elsewhere, own("former", GAP_MS))
    assert made.is_warm(T0_MS)
    assert not made.needs_full_sync(T0_MS)


def test_a_peer_is_not_trusted_unless_every_member_was_synced_there() -> None:
    unsynced = MemberSummary(address=B, boot_id="b", synced_ms_ago=5_000, synced=False)
    for members, warm, resolved in (
        ((own(),), False, True),
        ((own(),), True, False),
        ((own(), unsynced), True, True),
        ((own("former", GAP_MS + 1),), True, True),
        ((own("former", sync_gap=True),), True, True),
        ((own("me", sync_gap=True),), True, True),
    ):
        made = membership(A, B)
        assert not apply(made, *members, warm=warm, resolved=resolved)
        assert not made.is_warm(T0_MS)
    assert apply(membership(A, B), own("me", GAP_MS + 1))


def test_after_a_long_pause_the_own_address_need_not_be_synced_at_the_peer_as_this_very_boot_lived_through_it() -> None:
    made = membership(A)
    now_ms = T0_MS + 60_000
    resolve(made, now_ms, A)
    made.read(A, "me", 60_000, now_ms)
    made._warmup.warm_at_ms = T0_MS
    made.paused(now_ms, SLACK_MS + 1)
    assert made.apply_summary(
        SyncSummary(warmed_up=True, names_resolved=True, members=(own("me", 20_000, sync_gap=True),)), now_ms, now_ms
    )


def test_a_name_that_is_resolved_once_a_second_has_no_gap_however_short_the_slack_is() -> None:
    made = Membership(boot_id="me", names=("n",), policy=LeasePolicy(2_000, 1_000), now_ms=T0_MS)
    for asked in range(8):
        resolve(made, T0_MS + asked * 1_010, "a")
        made.read("a", "me", asked * 1_010, T0_MS + asked * 1_010)
    assert made.is_warm(T0_MS + 7 * 1_010)
