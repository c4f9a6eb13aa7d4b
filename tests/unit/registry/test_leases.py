"""The roster against a naive model, and each rule of time by itself."""

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.change import ChangeKind, DeregistrationReason, RemovalCause
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool, Registration
from poolmuster.registry.leases import LeaseEvent, LeaseTable
from poolmuster.registry.updates import SourceUpdate
from tests.support.leases import PoolLeases, apply
from tests.support.registrations import deregistration, key, registration, renewal

LEASE_MS = 15_000


def renew(
    leases: PoolLeases, now_ms: int, *renewals: tuple[Registration, int], credit_ms: int = 0, lease_ms: int = LEASE_MS
) -> list[LeaseEvent[Pool]]:
    read = tuple(renewal(each, lease_ms, remaining_ms) for each, remaining_ms in renewals)
    return apply(leases, SourceUpdate(started_ms=now_ms, credit_ms=credit_ms, renewals=read))


def ends(leases: PoolLeases, now_ms: int) -> list[str]:
    steps = leases.expire(now_ms, 1_000)
    assert all(step.kind is ChangeKind.REMOVED and step.cause is RemovalCause.EXPIRED for step in steps)
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
    leases, naive, now_ms = LeaseTable[PoolKey, Pool](), Naive(), 1_000
    for op in script:
        kind, name, number, span_ms = op
        if kind == "renew":
            steps = renew(leases, now_ms, (registration(name, weight=number), span_ms))
        elif kind == "leave":
            steps = apply(leases, SourceUpdate(started_ms=now_ms, deregistrations=(deregistration(name),)))
        else:
            now_ms += number
            steps = apply(leases, SourceUpdate(started_ms=now_ms, credit_ms=span_ms))
            steps += [
                step
                for _ in range(4 if one_at_a_time else 1)
                for step in leases.expire(now_ms, 1 if one_at_a_time else 10)
            ]
        told = [((step.after or step.before).key.dgd_name, step.kind) for step in steps]  # type: ignore[union-attr]  # a step has one
        assert sorted(told) == sorted(naive.take(now_ms, op))
        assert len(leases) == len(naive.live)
        for each, (_, end_ms) in naive.live.items():
            entry = leases.get(key(each))
            assert entry is not None
            assert leases.remaining_ms(entry, now_ms) == end_ms - now_ms
        next_ms = leases.next_expiry_ms()
        if naive.live:
            assert next_ms is not None
            assert next_ms <= min(end_ms for _, end_ms in naive.live.values())


def test_l2_a_lease_ends_at_its_moment_and_not_before() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    renew(leases, 0, (registration("a"), LEASE_MS))
    assert leases.next_expiry_ms() == LEASE_MS
    assert ends(leases, LEASE_MS - 1) == []
    assert ends(leases, LEASE_MS) == ["a"]
    assert leases.next_expiry_ms() is None
    assert leases.get(key("a")) is None


def test_l3_equal_facts_are_not_a_change_whatever_their_order_and_whoever_sends_them() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    one = registration("a", "r1", models=[{"id": "m", "aliases": ["x", "y"]}, {"id": "k"}])
    same = registration("a", "r2", models=[{"id": "k"}, {"aliases": ["y", "x"], "id": "m"}])
    assert [step.kind for step in renew(leases, 0, (one, LEASE_MS))] == [ChangeKind.ADDED]
    assert renew(leases, 1, (same, LEASE_MS)) == []
    assert renew(leases, 2, (same, LEASE_MS)) == []
    entry = leases.get(key("a"))
    assert entry is not None
    assert entry.relay_id == "r2"
    assert entry.record is one.pool, "of two equal bodies one is kept"


def test_l3_other_facts_are_one_change_and_renew_too() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    renew(leases, 0, (registration("a", weight=1), LEASE_MS))
    (step,) = renew(leases, 10, (registration("a", weight=2), LEASE_MS))
    assert step.kind is ChangeKind.CHANGED
    assert step.before is not None
    assert step.after is not None
    assert (step.before.document["weight"], step.after.document["weight"]) == (1, 2)
    assert ends(leases, LEASE_MS) == []
    assert ends(leases, LEASE_MS + 10) == ["a"]


def test_l4_a_lower_end_counts_as_well_as_a_higher_one() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    renew(leases, 0, (registration("a"), LEASE_MS), (registration("b"), LEASE_MS))
    renew(leases, 10, (registration("a"), 500))
    assert leases.next_expiry_ms() == 510
    assert ends(leases, 510) == ["a"]
    assert ends(leases, LEASE_MS) == ["b"]


def test_l5_credit_comes_first_then_renewals_then_the_end_of_leases() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    renew(leases, 0, (registration("a"), LEASE_MS), (registration("b"), LEASE_MS))
    assert renew(leases, 60_000, (registration("b"), LEASE_MS), credit_ms=50_000) == []
    assert ends(leases, 60_000) == []
    assert ends(leases, 64_999) == []
    assert ends(leases, 65_000) == ["a"]
    assert ends(leases, 75_000) == ["b"], "credit of the past does not add to what came after it"
    assert leases.lease_time_ms(60_000) == 10_000


def test_l10_a_departure_says_why() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    renew(leases, 0, (registration("a", "r1"), LEASE_MS))
    (step,) = apply(
        leases, SourceUpdate(started_ms=1, deregistrations=(deregistration("a", "r1", DeregistrationReason.NO_MODELS),))
    )
    assert (step.kind, step.cause, step.reason) == (
        ChangeKind.REMOVED,
        RemovalCause.DEREGISTERED,
        DeregistrationReason.NO_MODELS,
    )
    assert apply(leases, SourceUpdate(started_ms=2, deregistrations=(deregistration("a"),))) == []


def test_a_pool_that_left_and_came_back_lives_for_its_new_lease() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    renew(leases, 0, (registration("a"), LEASE_MS))
    apply(leases, SourceUpdate(started_ms=5_000, deregistrations=(deregistration("a"),)))
    renew(leases, 6_000, (registration("a"), LEASE_MS))
    assert ends(leases, LEASE_MS) == []
    assert ends(leases, 6_000 + LEASE_MS) == ["a"]


def test_the_queue_of_ends_does_not_grow_with_pools_that_come_and_go() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    renew(leases, 0, (registration("stays"), 86_400_000))
    for number in range(5_000):
        renew(leases, number, (registration("a"), 86_400_000))
        apply(leases, SourceUpdate(started_ms=number, deregistrations=(deregistration("a"),)))
    assert len(leases._expiries) < 2_000
    assert ends(leases, 86_400_000) == ["stays"]


def test_ends_that_were_put_off_are_looked_at_in_pieces_too() -> None:
    """Twenty thousand of them, renewed before a reading that comes late, would be one turn of 34 ms."""
    leases = LeaseTable[PoolKey, Pool]()
    names = [f"p{number}" for number in range(50)]
    renew(leases, 0, *((registration(name), LEASE_MS) for name in names))
    renew(leases, 1, *((registration(name), LEASE_MS) for name in names))
    assert leases.expire(LEASE_MS, 2) == []
    assert sum(leases._leases[key(name)].queued_ms == LEASE_MS + 1 for name in names) == 20
    assert leases.has_expired(LEASE_MS)
    assert [leases.expire(LEASE_MS, 2) for _ in range(2)] == [[], []]
    assert not leases.has_expired(LEASE_MS)
    assert len(ends(leases, LEASE_MS + 1)) == 50


def test_leases_end_in_pieces_until_none_is_over() -> None:
    leases = LeaseTable[PoolKey, Pool]()
    renew(leases, 0, *((registration(name), LEASE_MS) for name in "abcde"))
    assert [len(leases.expire(LEASE_MS, 2)) for _ in range(4)] == [2, 2, 1, 0]
    assert not leases.has_expired(LEASE_MS)
