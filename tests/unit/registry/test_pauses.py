"""L5: what counts as a pause, and that none is credited twice."""

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.registry.pauses import PAUSE_MS, TICK_MS, PauseDetector


def test_l5_a_gap_over_a_second_between_ticks_is_a_pause_and_counts_whole() -> None:
    meter = PauseDetector(0)
    assert meter.tick(TICK_MS) == 0
    assert meter.tick(TICK_MS + PAUSE_MS) == 0
    assert meter.tick(TICK_MS + 2 * PAUSE_MS + 1) == PAUSE_MS + 1
    assert meter.tick(TICK_MS + 2 * PAUSE_MS + 2) == 0


def test_l5_a_request_that_comes_before_the_timer_credits_the_pause_and_the_tick_does_not_again() -> None:
    meter = PauseDetector(0)
    assert meter.check(PAUSE_MS) == 0
    assert not meter.is_overdue(PAUSE_MS)
    assert meter.is_overdue(60_000)
    assert meter.check(60_000) == 60_000
    assert not meter.is_overdue(60_000)
    assert meter.tick(60_001) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3000)), max_size=50))
def test_l5_credit_never_exceeds_the_time_that_passed(script: list[tuple[bool, int]]) -> None:
    meter, now_ms, credit_ms = PauseDetector(0), 0, 0
    for by_timer, passes_ms in script:
        now_ms += passes_ms
        credit_ms += meter.tick(now_ms) if by_timer else meter.check(now_ms)
        assert credit_ms <= now_ms
        assert not meter.is_overdue(now_ms)
