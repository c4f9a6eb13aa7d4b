"""The relay's heartbeat: rules of time, on times that the test makes up."""

import itertools
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.change import DeregistrationReason
from poolmuster.relay.heartbeat import (
    Deregister,
    DeregisterRequest,
    Heartbeat,
    HeartbeatAccepted,
    HeartbeatFailed,
    HeartbeatRefused,
    Outcome,
    Phase,
    Register,
    Superseded,
    Terms,
    Wait,
    terms_of,
)

FACTS = b'{"dgd_name":"n"}'
DOWN = DeregisterRequest(DeregistrationReason.FRONTEND_UNHEALTHY, "no answer")
TERMS = Terms(15_000, 5_000)


@dataclass
class World:
    """A heartbeat and the time it lives in."""

    urls: int = 1
    draw: float = 0.0
    now_ms: int = 1_000
    ids: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.beat = Heartbeat(self.urls, new_id=lambda: f"id-{next(self.ids)}", rng=lambda: self.draw)

    def step(self) -> Register | Deregister:
        """Wait until there is something to do."""
        step = self.beat.next(self.now_ms)
        if isinstance(step, Wait):
            assert step.until_ms is not None, "it waits for something to happen"
            self.now_ms = max(self.now_ms, step.until_ms)
            step = self.beat.next(self.now_ms)
        assert not isinstance(step, Wait)
        return step

    def end(self, outcome: Outcome, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.beat.ended(self.now_ms, outcome)

    def registered(self) -> "World":
        self.beat.set_document(self.now_ms, FACTS)
        self.step()
        self.end(HeartbeatAccepted(TERMS, created=True))
        return self


def test_nothing_is_sent_before_the_server_is_up() -> None:
    world = World()
    assert world.beat.next(world.now_ms) == Wait(None)
    world.beat.withdraw(world.now_ms, DOWN)
    assert world.beat.next(world.now_ms) == Wait(None)
    assert world.beat.phase(world.now_ms) is Phase.WAITING


def test_it_registers_at_once_and_renews_at_the_interval_from_the_start_of_the_last_good_attempt() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    assert world.beat.phase(world.now_ms) is Phase.JOINING
    assert world.step() == Register(0, "id-0", FACTS, 3_000)
    world.end(HeartbeatAccepted(TERMS, created=True), after_ms=400)
    assert world.beat.phase(world.now_ms) is Phase.REGISTERED
    world.step()
    assert world.now_ms == 6_000


def test_chance_makes_a_heartbeat_earlier_never_later() -> None:
    world = World(draw=0.999).registered()
    world.step()
    assert 5_500 <= world.now_ms < 6_000


def test_an_interval_over_half_of_the_lease_is_shortened_to_half() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.end(HeartbeatAccepted(Terms(10_000, 9_900)))
    world.step()
    assert world.now_ms == 6_000


def test_an_attempt_has_a_fifth_of_the_lease_and_three_seconds_at_most() -> None:
    assert Terms(10_000, 1_000).attempt_ms == 2_000
    assert Terms(60_000, 1_000).attempt_ms == 3_000


def test_the_next_url_is_tried_at_once_and_a_pause_follows_when_all_have_failed() -> None:
    world = World(urls=2, draw=0.5)
    world.beat.set_document(world.now_ms, FACTS)
    assert world.step().url == 0
    world.end(HeartbeatFailed("cut"), after_ms=3_000)
    before_ms = world.now_ms
    assert world.step().url == 1
    assert world.now_ms == before_ms
    world.end(HeartbeatFailed("cut"), after_ms=3_000)
    before_ms = world.now_ms
    assert world.step().url == 0
    assert 0 < world.now_ms - before_ms <= 750


def test_a_url_that_works_is_kept() -> None:
    world = World(urls=2)
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.end(HeartbeatFailed("cut"))
    world.step()
    world.end(HeartbeatAccepted(TERMS))
    assert world.step().url == 1


@given(st.integers(1, 4), st.floats(0, 0.999), st.lists(st.integers(0, 600), min_size=1, max_size=60))
def test_pauses_never_exceed_the_interval(urls: int, draw: float, retry_after_s: list[int]) -> None:
    world = World(urls=urls, draw=draw)
    world.beat.set_document(world.now_ms, FACTS)
    for asked_s in retry_after_s:
        before_ms = world.now_ms
        world.step()
        assert world.now_ms - before_ms <= 5_000
        world.end(HeartbeatFailed("busy", asked_s * 1000))


def test_retry_after_is_honoured_within_the_interval() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.end(HeartbeatFailed("busy", 2_000))
    before_ms = world.now_ms
    world.step()
    assert world.now_ms - before_ms == 2_000


OUTCOMES = st.one_of(
    st.builds(HeartbeatFailed, st.just("x"), st.one_of(st.none(), st.integers(0, 60_000))),
    st.builds(HeartbeatRefused, st.sampled_from([400, 401, 403, 404]), st.just("x")),
)


@given(
    st.integers(1_000, 86_400_000),
    st.floats(0.001, 0.999),
    st.integers(1, 3),
    st.lists(st.tuples(st.booleans(), OUTCOMES, st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.999)), max_size=60),
)
def test_one_lost_heartbeat_never_costs_the_lease(
    lease_ms: int,
    share: float,
    urls: int,
    course: list[tuple[bool, Outcome, float, float, float]],
) -> None:
    """Whatever the terms, while no two attempts in a row fail, each good answer comes within a lease of the last."""
    terms = terms_of(lease_ms, round(lease_ms * share))
    world = World(urls=urls)
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.end(HeartbeatAccepted(terms))
    renewed_ms, failed_before = world.now_ms, False
    for fails, outcome, slowness, slowness_after, draw in course:
        world.draw = draw
        step = world.step()
        started_ms = world.now_ms
        if fails and not failed_before:
            world.end(outcome, after_ms=int(step.timeout_ms * slowness))
            failed_before = True
            continue
        world.end(HeartbeatAccepted(terms), after_ms=int(step.timeout_ms * slowness_after))
        assert world.now_ms - renewed_ms < terms.lease_ms
        renewed_ms, failed_before = started_ms, False


def test_changed_facts_are_sent_at_once() -> None:
    world = World().registered()
    world.beat.set_document(world.now_ms, b"new")
    before_ms = world.now_ms
    step = world.step()
    assert isinstance(step, Register)
    assert (step.facts, step.relay_id, world.now_ms) == (b"new", "id-0", before_ms)


def test_facts_that_change_while_a_heartbeat_is_under_way_follow_it_at_once() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.beat.set_document(world.now_ms, b"new")
    world.end(HeartbeatAccepted(TERMS), after_ms=100)
    before_ms = world.now_ms
    step = world.step()
    assert isinstance(step, Register)
    assert (step.facts, world.now_ms) == (b"new", before_ms)


def test_changed_facts_do_not_hurry_a_service_that_struggles() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.end(HeartbeatFailed("busy", 4_000))
    world.beat.set_document(world.now_ms, b"new")
    before_ms = world.now_ms
    world.step()
    assert world.now_ms - before_ms == 4_000


def test_changed_facts_are_tried_at_once_where_the_old_ones_were_refused() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.end(HeartbeatRefused(400, "bad label"))
    before_ms = world.now_ms
    world.beat.set_document(world.now_ms, b"new")
    world.step()
    assert world.now_ms == before_ms


def test_409_takes_a_new_id_and_sends_again_at_once_but_not_without_end() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.end(Superseded("left"))
    before_ms = world.now_ms
    step = world.step()
    assert isinstance(step, Register)
    assert (step.relay_id, world.now_ms) == ("id-1", before_ms)
    world.end(Superseded("left"))
    step = world.step()
    assert isinstance(step, Register)
    assert step.relay_id == "id-2"
    assert world.now_ms - before_ms == 5_000


def test_409_sends_nothing_again_when_the_server_is_down() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.beat.withdraw(world.now_ms, DOWN)
    world.end(Superseded("left"))
    assert world.beat.next(world.now_ms) == Wait(None)


def test_another_refusal_waits_for_the_next_heartbeat_and_shows() -> None:
    world = World(urls=2)
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.end(HeartbeatRefused(403, "not your cluster"))
    assert world.beat.problem == HeartbeatRefused(403, "not your cluster")
    before_ms = world.now_ms
    assert world.step().url == 1
    assert world.now_ms - before_ms == 5_000
    world.end(HeartbeatAccepted(TERMS))
    assert world.beat.problem is None


def test_a_conflict_shows_for_one_lease_at_most() -> None:
    world = World()
    world.beat.set_document(world.now_ms, FACTS)
    world.step()
    world.end(HeartbeatAccepted(TERMS, conflict=True))
    assert world.beat.conflict(world.now_ms)
    assert not world.beat.conflict(world.now_ms + 15_000)


def test_a_pause_of_the_process_is_followed_by_one_heartbeat_at_once() -> None:
    world = World().registered()
    world.now_ms += 60_000
    before_ms = world.now_ms
    step = world.step()
    assert isinstance(step, Register)
    assert (step.relay_id, world.now_ms) == ("id-0", before_ms)
    assert not world.beat.listed(world.now_ms)


@given(st.integers(-5, 10**15), st.integers(-5, 10**15))
def test_no_terms_make_it_spin_or_sleep_for_ever(lease_ms: int, interval_ms: int) -> None:
    terms = terms_of(lease_ms, interval_ms)
    assert 50 <= terms.retry_ms <= terms.spacing_ms <= terms.lease_ms / 2 <= 43_200_000
