"""L5: what counts as a pause, and that none is credited twice."""

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.platform.lease_clock import PAUSE_MS, TickingLeaseClock

TICK_MS = 250


class Stopped:
    """A lease clock on a time that the test sets, and the pauses that it announced."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.clock = TickingLeaseClock(lambda: self.now_ms)
        self.pauses: list[tuple[int, int]] = []
        self.clock.subscribe(lambda ended_ms, length_ms: self.pauses.append((ended_ms, length_ms)))

    def tick(self, now_ms: int) -> None:
        self.now_ms = now_ms
        assert self.clock.tick() == now_ms

    def event(self, now_ms: int) -> None:
        self.now_ms = now_ms
        assert self.clock.notice_pause() == now_ms


def test_l5_a_gap_over_a_second_between_ticks_is_a_pause_and_counts_whole() -> None:
    stopped = Stopped()
    stopped.tick(TICK_MS)
    stopped.tick(TICK_MS + PAUSE_MS)
    assert stopped.pauses == []
    stopped.tick(TICK_MS + 2 * PAUSE_MS + 1)
    assert stopped.pauses == [(TICK_MS + 2 * PAUSE_MS + 1, PAUSE_MS + 1)]
    stopped.tick(TICK_MS + 2 * PAUSE_MS + 2)
    assert len(stopped.pauses) == 1
    assert stopped.clock.credit_ms == PAUSE_MS + 1


def test_l5_an_event_before_the_timer_announces_the_pause_and_the_tick_does_not_again() -> None:
    stopped = Stopped()
    stopped.event(PAUSE_MS)
    assert stopped.pauses == []
    stopped.event(60_000)
    assert stopped.pauses == [(60_000, 60_000)]
    assert stopped.clock.ticked_ms == 60_000
    stopped.tick(60_001)
    assert len(stopped.pauses) == 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3000)), max_size=50))
def test_l5_credit_never_exceeds_the_time_that_passed(script: list[tuple[bool, int]]) -> None:
    stopped, now_ms = Stopped(), 0
    for by_timer, passes_ms in script:
        now_ms += passes_ms
        (stopped.tick if by_timer else stopped.event)(now_ms)
        assert stopped.clock.credit_ms == sum(length_ms for _, length_ms in stopped.pauses) <= now_ms
        assert now_ms - stopped.clock.ticked_ms <= PAUSE_MS
