"""L9: two relays that speak for one pool in turn."""

from poolmuster.core.conflicts import SPANS_LIMIT, TRAIL_LIMIT, TRAILS_LIMIT, Conflicts
from poolmuster.core.reading import Reading, Renewal
from poolmuster.core.roster import Roster
from poolmuster.model.key import PoolKey
from tests.support.registrations import departure, key, registration

LEASE_MS = 15_000
A = key("a")


def register(roster: Roster, now_ms: int, relay_id: str | None) -> bool:
    """Register pool a by ``relay_id``. Returns whether a conflict was told."""
    roster.apply(Reading(started_ms=now_ms, renewals=(Renewal(registration("a", relay_id), LEASE_MS, LEASE_MS),)))
    told = list(roster.new_conflicts)
    roster.new_conflicts.clear()
    return told == [A]


def leave(roster: Roster, now_ms: int, relay_id: str | None) -> None:
    roster.apply(Reading(started_ms=now_ms, departures=(departure("a", relay_id),)))


def test_l9_a_then_b_then_a_within_a_lease_is_a_conflict_and_told_once() -> None:
    roster = Roster()
    assert [register(roster, at_ms, relay) for at_ms, relay in [(0, "A"), (1000, "B"), (2000, "A"), (3000, "B")]] == [
        False,
        False,
        True,
        False,
    ]
    span = roster.conflict(A, 3000)
    assert span is not None
    assert (span.relay_ids, span.since_ms, span.last_ms) == (("A", "B"), 2000, 3000)


def test_l9_a_rolling_update_is_no_conflict() -> None:
    roster = Roster()
    assert not any(
        register(roster, at_ms, relay) for at_ms, relay in [(0, "A"), (5000, "A"), (6000, "B"), (11_000, "B")]
    )
    assert roster.conflict(A, 11_000) is None


def test_l9_it_ends_when_a_lease_has_passed_without_another_turn() -> None:
    roster = Roster()
    for at_ms, relay in [(0, "A"), (1000, "B"), (2000, "A")]:
        register(roster, at_ms, relay)
    register(roster, 10_000, "A")
    assert roster.conflict(A, 2000 + LEASE_MS - 1) is not None
    assert roster.conflict(A, 2000 + LEASE_MS) is None
    assert roster.conflicts.all(2000 + LEASE_MS) == {}


def test_l9_one_that_ended_is_told_anew_when_it_begins_anew() -> None:
    roster = Roster()
    for at_ms, relay in [(0, "A"), (1000, "B"), (2000, "A")]:
        register(roster, at_ms, relay)
    later_ms = 60_000
    assert [register(roster, later_ms + at_ms, relay) for at_ms, relay in [(0, "B"), (1000, "A"), (2000, "B")]] == [
        False,
        False,
        True,
    ]


def test_l9_turns_more_than_a_lease_apart_are_none() -> None:
    roster = Roster()
    register(roster, 0, "A")
    register(roster, 10_000, "B")
    assert not register(roster, LEASE_MS + 1, "A")


def test_l9_a_registration_without_a_relay_takes_no_part() -> None:
    roster = Roster()
    assert not any(
        register(roster, at_ms, relay) for at_ms, relay in [(0, "A"), (1, None), (2, "A"), (3, None), (4, "A")]
    )
    fresh = Roster()
    assert not any(register(fresh, at_ms, relay) for at_ms, relay in [(0, None), (1, "B"), (2, None), (3, "B")])


def test_l9_one_that_left_and_comes_after_its_successor_makes_a_conflict() -> None:
    roster = Roster()
    register(roster, 0, "A")
    leave(roster, 1000, "A")
    register(roster, 2000, "B")
    assert register(roster, 3000, "A")


def test_l9_one_that_comes_after_its_successor_left_makes_a_conflict() -> None:
    roster = Roster()
    register(roster, 0, "A")
    register(roster, 1000, "B")
    leave(roster, 2000, "B")
    assert register(roster, 3000, "A")


def test_l9_a_relay_that_starts_again_under_another_id_makes_none() -> None:
    roster = Roster()
    register(roster, 0, "A")
    leave(roster, 1000, "A")
    assert not register(roster, 2000, "B")
    leave(roster, 3000, "B")
    assert not register(roster, 4000, "C")


def test_l9_a_pause_does_not_count_towards_the_lease() -> None:
    roster = Roster()
    register(roster, 0, "A")
    register(roster, 1000, "B")
    roster.apply(Reading(started_ms=61_000, credit_ms=60_000))
    assert register(roster, 62_000, "A")


def test_three_relays_are_all_named() -> None:
    roster = Roster()
    for at_ms, relay in enumerate(["A", "B", "A", "C", "A"]):
        register(roster, at_ms, relay)
    span = roster.conflict(A, 5)
    assert span is not None
    assert span.relay_ids == ("A", "B", "C")


def test_what_is_remembered_of_one_pool_is_bounded() -> None:
    conflicts, previous = Conflicts(), ("r0", 0)
    for number in range(1, 50):
        conflicts.turn(A, previous, f"r{number}", number, LEASE_MS)
        previous = (f"r{number}", number)
    assert len(conflicts._trails[A]) <= TRAIL_LIMIT


def test_what_is_remembered_of_all_pools_is_bounded() -> None:
    conflicts = Conflicts()
    for number in range(TRAILS_LIMIT + 5):
        conflicts.left(PoolKey("c", "n", f"{number}"), ("r", number))
    assert len(conflicts._trails) == TRAILS_LIMIT
    assert PoolKey("c", "n", "0") not in conflicts._trails


def test_conflicts_are_bounded_too_and_the_first_is_forgotten_first() -> None:
    conflicts = Conflicts()
    for number in range(SPANS_LIMIT + 5):
        each = PoolKey("c", "n", f"{number}")
        conflicts.turn(each, ("A", number), "B", number, LEASE_MS)
        conflicts.turn(each, ("B", number), "A", number, LEASE_MS)
    assert len(conflicts._spans) == SPANS_LIMIT
    assert PoolKey("c", "n", "0") not in conflicts._spans


def test_what_is_over_is_forgotten() -> None:
    roster = Roster()
    for at_ms, relay in [(0, "A"), (1000, "B"), (2000, "A")]:
        register(roster, at_ms, relay)
    roster.forget(2000 + LEASE_MS - 1)
    assert roster.conflicts._spans
    assert roster.conflicts._trails
    roster.forget(2000 + LEASE_MS)
    assert not roster.conflicts._spans
    assert not roster.conflicts._trails
