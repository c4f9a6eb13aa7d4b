"""L9: two relays that speak for one pool in turn."""

from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool
from poolmuster.registry.conflicts import CONFLICTS_LIMIT, POOLS_LIMIT, RELAYS_A_POOL_LIMIT, Conflicts
from poolmuster.registry.leases import LeaseTable
from poolmuster.registry.updates import SourceUpdate
from tests.support.leases import PoolLeases, apply
from tests.support.registrations import deregistration, key, registration, renewal

LEASE_MS = 15_000
A = key("a")


def register(leases: PoolLeases, now_ms: int, relay_id: str | None) -> bool:
    """Register pool a by ``relay_id``. Returns whether a conflict was told."""
    apply(leases, SourceUpdate(started_ms=now_ms, renewals=(renewal(registration("a", relay_id), LEASE_MS, LEASE_MS),)))
    told = list(leases.new_conflicts)
    leases.new_conflicts.clear()
    return told == [A]


def leave(leases: PoolLeases, now_ms: int, relay_id: str | None) -> None:
    apply(leases, SourceUpdate(started_ms=now_ms, deregistrations=(deregistration("a", relay_id),)))


def test_l9_a_then_b_then_a_within_a_lease_is_a_conflict_and_told_once() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    assert [register(leases, at_ms, relay) for at_ms, relay in [(0, "A"), (1000, "B"), (2000, "A"), (3000, "B")]] == [
        False,
        False,
        True,
        False,
    ]
    span = leases.conflict(A, 3000)
    assert span is not None
    assert (span.relay_ids, span.since_ms, span.last_ms) == (("A", "B"), 2000, 3000)


def test_l9_a_rolling_update_is_no_conflict() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    assert not any(
        register(leases, at_ms, relay) for at_ms, relay in [(0, "A"), (5000, "A"), (6000, "B"), (11_000, "B")]
    )
    assert leases.conflict(A, 11_000) is None


def test_l9_it_ends_when_a_lease_has_passed_without_another_turn() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    for at_ms, relay in [(0, "A"), (1000, "B"), (2000, "A")]:
        register(leases, at_ms, relay)
    register(leases, 10_000, "A")
    assert leases.conflict(A, 2000 + LEASE_MS - 1) is not None
    assert leases.conflict(A, 2000 + LEASE_MS) is None
    assert leases.conflicts.all(2000 + LEASE_MS) == {}


def test_l9_one_that_ended_is_told_anew_when_it_begins_anew() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    for at_ms, relay in [(0, "A"), (1000, "B"), (2000, "A")]:
        register(leases, at_ms, relay)
    later_ms = 60_000
    assert [register(leases, later_ms + at_ms, relay) for at_ms, relay in [(0, "B"), (1000, "A"), (2000, "B")]] == [
        False,
        False,
        True,
    ]


def test_l9_turns_more_than_a_lease_apart_are_none() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    register(leases, 0, "A")
    register(leases, 10_000, "B")
    assert not register(leases, LEASE_MS + 1, "A")


def test_l9_a_registration_without_a_relay_takes_no_part() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    assert not any(
        register(leases, at_ms, relay) for at_ms, relay in [(0, "A"), (1, None), (2, "A"), (3, None), (4, "A")]
    )
    fresh = LeaseTable[PoolKey, Pool]()
    assert not any(register(fresh, at_ms, relay) for at_ms, relay in [(0, None), (1, "B"), (2, None), (3, "B")])


def test_l9_one_that_left_and_comes_after_its_successor_makes_a_conflict() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    register(leases, 0, "A")
    leave(leases, 1000, "A")
    register(leases, 2000, "B")
    assert register(leases, 3000, "A")


def test_l9_one_that_comes_after_its_successor_left_makes_a_conflict() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    register(leases, 0, "A")
    register(leases, 1000, "B")
    leave(leases, 2000, "B")
    assert register(leases, 3000, "A")


def test_l9_a_relay_that_starts_again_under_another_id_makes_none() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    register(leases, 0, "A")
    leave(leases, 1000, "A")
    assert not register(leases, 2000, "B")
    leave(leases, 3000, "B")
    assert not register(leases, 4000, "C")


def test_l9_a_pause_does_not_count_towards_the_lease() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    register(leases, 0, "A")
    register(leases, 1000, "B")
    apply(leases, SourceUpdate(started_ms=61_000, credit_ms=60_000))
    assert register(leases, 62_000, "A")


def test_three_relays_are_all_named() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    for at_ms, relay in enumerate(["A", "B", "A", "C", "A"]):
        register(leases, at_ms, relay)
    span = leases.conflict(A, 5)
    assert span is not None
    assert span.relay_ids == ("A", "B", "C")


def test_what_is_remembered_of_one_pool_is_bounded() -> None:
    conflicts, previous = Conflicts[PoolKey](), ("r0", 0)
    for number in range(1, 50):
        conflicts.record_switch(A, previous, f"r{number}", number, LEASE_MS)
        previous = (f"r{number}", number)
    assert len(conflicts._recent_relays[A]) <= RELAYS_A_POOL_LIMIT


def test_what_is_remembered_of_all_pools_is_bounded() -> None:
    conflicts = Conflicts[PoolKey]()
    for number in range(POOLS_LIMIT + 5):
        conflicts.record_deregistration(PoolKey("c", "n", f"{number}"), ("r", number))
    assert len(conflicts._recent_relays) == POOLS_LIMIT
    assert PoolKey("c", "n", "0") not in conflicts._recent_relays


def test_conflicts_are_bounded_too_and_the_first_is_forgotten_first() -> None:
    conflicts = Conflicts[PoolKey]()
    for number in range(CONFLICTS_LIMIT + 5):
        each = PoolKey("c", "n", f"{number}")
        conflicts.record_switch(each, ("A", number), "B", number, LEASE_MS)
        conflicts.record_switch(each, ("B", number), "A", number, LEASE_MS)
    assert len(conflicts._spans) == CONFLICTS_LIMIT
    assert PoolKey("c", "n", "0") not in conflicts._spans


def test_what_is_over_is_forgotten() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    for at_ms, relay in [(0, "A"), (1000, "B"), (2000, "A")]:
        register(leases, at_ms, relay)
    leases.evict(2000 + LEASE_MS - 1)
    assert leases.conflicts._spans
    assert leases.conflicts._recent_relays
    leases.evict(2000 + LEASE_MS)
    assert not leases.conflicts._spans
    assert not leases.conflicts._recent_relays
