"""The roster against a naive model, and each rule of time by itself."""

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.core.reading import Reading, Renewal
from poolmuster.core.roster import Roster, Step
from poolmuster.model.change import Cause, ChangeKind, LeaveReason
from poolmuster.model.registration import Registration
from tests.support.registrations import departure, key, registration

LEASE_MS = 15_000


def renew(
    roster: Roster, now_ms: int, *renewals: tuple[Registration, int], credit_ms: int = 0, lease_ms: int = LEASE_MS
) -> list[Step]:
    read = tuple(Renewal(each, lease_ms, remaining_ms) for each, remaining_ms in renewals)
    return roster.apply(Reading(started_ms=now_ms, credit_ms=credit_ms, renewals=read))


def ends(roster: Roster, now_ms: int) -> list[str]:
    steps = roster.end_leases(now_ms, 1_000)
    assert all(step.kind is ChangeKind.REMOVED and step.cause is Cause.EXPIRED for step in steps)
    return [step.before.key.dgd_name for step in steps if step.before is not None]


ops = st.lists(
    st.one_of(
        st.tuples(st.just("renew"), st.sampled_from("abc"), st.integers(0, 2), st.integers(1, 40)),
        st.tuples(st.just("leave"), st.sampled_from("abc"), st.just(0), st.just(0)),
        st.tuples(st.just("pass"), st.just(""), st.integers(0, 20), st.integers(0, 20)),
    ),
    max_size=60,
)


class Naive:
    """Deadlines in a dictionary, each moved by each credit; it looks at all of them every time."""

    def __init__(self) -> None:
        self.live: dict[str, tuple[int, int]] = {}

    def take(self, now_ms: int, op: tuple[str, str, int, int]) -> list[tuple[str, ChangeKind]]:
        kind, name, number, span_ms = op
        if kind == "pass":
            self.live = {each: (weight, end_ms + span_ms) for each, (weight, end_ms) in self.live.items()}
            over = sorted(each for each, (_, end_ms) in self.live.items() if end_ms <= now_ms)
            for each in over:
                del self.live[each]
            return [(each, ChangeKind.REMOVED) for each in over]
        before = self.live.pop(name, None)
        if kind == "leave":
            return [(name, ChangeKind.REMOVED)] if before else []
        self.live[name] = (number, now_ms + span_ms)
        if before is None:
            return [(name, ChangeKind.ADDED)]
        return [] if before[0] == number else [(name, ChangeKind.CHANGED)]


@given(ops, st.booleans())
def test_it_equals_a_naive_model(script: list[tuple[str, str, int, int]], one_at_a_time: bool) -> None:
    roster, naive, now_ms = Roster(), Naive(), 1_000
    for op in script:
        kind, name, number, span_ms = op
        if kind == "renew":
            steps = renew(roster, now_ms, (registration(name, weight=number), span_ms))
        elif kind == "leave":
            steps = roster.apply(Reading(started_ms=now_ms, departures=(departure(name),)))
        else:
            now_ms += number
            steps = roster.apply(Reading(started_ms=now_ms, credit_ms=span_ms))
            steps += [
                step
                for _ in range(4 if one_at_a_time else 1)
                for step in roster.end_leases(now_ms, 1 if one_at_a_time else 10)
            ]
        told = [((step.after or step.before).key.dgd_name, step.kind) for step in steps]  # type: ignore[union-attr]  # a step has one
        assert sorted(told) == sorted(naive.take(now_ms, op))
        assert len(roster) == len(naive.live)
        for each, (_, end_ms) in naive.live.items():
            entry = roster.get(key(each))
            assert entry is not None
            assert roster.ends_in_ms(entry, now_ms) == end_ms - now_ms
        next_ms = roster.next_end_ms()
        if naive.live:
            assert next_ms is not None
            assert next_ms <= min(end_ms for _, end_ms in naive.live.values())


def test_l2_a_lease_ends_at_its_moment_and_not_before() -> None:
    roster = Roster()
    renew(roster, 0, (registration("a"), LEASE_MS))
    assert roster.next_end_ms() == LEASE_MS
    assert ends(roster, LEASE_MS - 1) == []
    assert ends(roster, LEASE_MS) == ["a"]
    assert roster.next_end_ms() is None
    assert roster.get(key("a")) is None


def test_l3_equal_facts_are_not_a_change_whatever_their_order_and_whoever_sends_them() -> None:
    roster = Roster()
    one = registration("a", "r1", models=[{"id": "m", "aliases": ["x", "y"]}, {"id": "k"}])
    same = registration("a", "r2", models=[{"id": "k"}, {"aliases": ["y", "x"], "id": "m"}])
    assert [step.kind for step in renew(roster, 0, (one, LEASE_MS))] == [ChangeKind.ADDED]
    assert renew(roster, 1, (same, LEASE_MS)) == []
    assert renew(roster, 2, (same, LEASE_MS)) == []
    entry = roster.get(key("a"))
    assert entry is not None
    assert entry.registration.relay_id == "r2"
    assert entry.registration.pool is one.pool, "of two equal bodies one is kept"


def test_l3_other_facts_are_one_change_and_renew_too() -> None:
    roster = Roster()
    renew(roster, 0, (registration("a", weight=1), LEASE_MS))
    (step,) = renew(roster, 10, (registration("a", weight=2), LEASE_MS))
    assert step.kind is ChangeKind.CHANGED
    assert step.before is not None
    assert step.after is not None
    assert (step.before.document["weight"], step.after.document["weight"]) == (1, 2)
    assert ends(roster, LEASE_MS) == []
    assert ends(roster, LEASE_MS + 10) == ["a"]


def test_l4_a_lower_end_counts_as_well_as_a_higher_one() -> None:
    roster = Roster()
    renew(roster, 0, (registration("a"), LEASE_MS), (registration("b"), LEASE_MS))
    renew(roster, 10, (registration("a"), 500))
    assert roster.next_end_ms() == 510
    assert ends(roster, 510) == ["a"]
    assert ends(roster, LEASE_MS) == ["b"]


def test_l5_credit_comes_first_then_renewals_then_the_end_of_leases() -> None:
    roster = Roster()
    renew(roster, 0, (registration("a"), LEASE_MS), (registration("b"), LEASE_MS))
    assert renew(roster, 60_000, (registration("b"), LEASE_MS), credit_ms=50_000) == []
    assert ends(roster, 60_000) == []
    assert ends(roster, 64_999) == []
    assert ends(roster, 65_000) == ["a"]
    assert ends(roster, 75_000) == ["b"], "credit of the past does not add to what came after it"
    assert roster.lease_time_ms(60_000) == 10_000


def test_l10_a_departure_says_why() -> None:
    roster = Roster()
    renew(roster, 0, (registration("a", "r1"), LEASE_MS))
    (step,) = roster.apply(Reading(started_ms=1, departures=(departure("a", "r1", LeaveReason.NO_MODELS),)))
    assert (step.kind, step.cause, step.reason) == (ChangeKind.REMOVED, Cause.DEREGISTERED, LeaveReason.NO_MODELS)
    assert roster.apply(Reading(started_ms=2, departures=(departure("a"),))) == []


def test_a_pool_that_left_and_came_back_lives_for_its_new_lease() -> None:
    roster = Roster()
    renew(roster, 0, (registration("a"), LEASE_MS))
    roster.apply(Reading(started_ms=5_000, departures=(departure("a"),)))
    renew(roster, 6_000, (registration("a"), LEASE_MS))
    assert ends(roster, LEASE_MS) == []
    assert ends(roster, 6_000 + LEASE_MS) == ["a"]


def test_the_queue_of_ends_does_not_grow_with_pools_that_come_and_go() -> None:
    roster = Roster()
    renew(roster, 0, (registration("stays"), 86_400_000))
    for number in range(5_000):
        renew(roster, number, (registration("a"), 86_400_000))
        roster.apply(Reading(started_ms=number, departures=(departure("a"),)))
    assert len(roster._ends) < 2_000
    assert ends(roster, 86_400_000) == ["stays"]


def test_ends_that_were_put_off_are_looked_at_in_pieces_too() -> None:
    """Twenty thousand of them, renewed before a reading that comes late, would be one turn of 34 ms."""
    roster = Roster()
    names = [f"p{number}" for number in range(50)]
    renew(roster, 0, *((registration(name), LEASE_MS) for name in names))
    renew(roster, 1, *((registration(name), LEASE_MS) for name in names))
    assert roster.end_leases(LEASE_MS, 2) == []
    assert sum(roster._entries[key(name)].queued_ms == LEASE_MS + 1 for name in names) == 20
    assert roster.any_over(LEASE_MS)
    assert [roster.end_leases(LEASE_MS, 2) for _ in range(2)] == [[], []]
    assert not roster.any_over(LEASE_MS)
    assert len(ends(roster, LEASE_MS + 1)) == 50


def test_leases_end_in_pieces_until_none_is_over() -> None:
    roster = Roster()
    renew(roster, 0, *((registration(name), LEASE_MS) for name in "abcde"))
    assert [len(roster.end_leases(LEASE_MS, 2)) for _ in range(4)] == [2, 2, 1, 0]
    assert not roster.any_over(LEASE_MS)
