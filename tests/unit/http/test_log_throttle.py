"""What is told of many alike events: enough to know, never enough to fill a log."""

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.http.log_throttle import LogThrottle


def test_the_first_is_told_and_then_one_an_interval_with_the_number_left_out() -> None:
    throttle: LogThrottle[str] = LogThrottle()
    assert [throttle.tell("a", now_ms) for now_ms in (0, 1, 999, 1000, 1001, 3000)] == [0, None, None, 2, None, 1]


def test_keys_do_not_hold_each_other_up() -> None:
    throttle: LogThrottle[str] = LogThrottle()
    assert throttle.tell("a", 0) == 0
    assert throttle.tell("b", 0) == 0


def test_what_was_left_out_is_told_when_nothing_follows() -> None:
    throttle: LogThrottle[str] = LogThrottle()
    throttle.tell("a", 0)
    throttle.tell("a", 1)
    throttle.tell("b", 0)
    assert throttle.left_out(1_999) == []
    assert throttle.left_out(2_000) == [("a", 1)]
    assert throttle.tell("a", 2_100) is None, "the number was a line too"
    assert throttle.left_out(4_000) == [("a", 1)]
    assert throttle.left_out(6_000) == []
    assert len(throttle) == 0


def test_further_keys_count_as_one() -> None:
    throttle: LogThrottle[int] = LogThrottle(keys=2)
    assert [throttle.tell(key, 0) for key in range(5)] == [0, 0, 0, None, None]
    assert throttle.tell(9, 999) is None
    assert len(throttle) == 3
    assert throttle.left_out(2_000) == [(None, 3)]


def test_what_a_forgotten_key_left_out_is_told_by_the_next() -> None:
    throttle: LogThrottle[int] = LogThrottle(keys=1)
    assert [throttle.tell(1, now_ms) for now_ms in (0, 1, 2)] == [0, None, None]
    assert throttle.tell(2, 1_000) == 2


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 700), st.booleans()), max_size=60))
def test_every_event_is_told_or_counted_once_and_lines_and_memory_are_bounded(
    events: list[tuple[int, int, bool]],
) -> None:
    """However keys and times mix."""
    throttle: LogThrottle[int] = LogThrottle(keys=3)
    now_ms = 0
    lines: list[int] = []
    accounted = 0
    for key, wait_ms, sweep in events:
        now_ms += wait_ms
        told = throttle.tell(key, now_ms)
        if told is not None:
            lines.append(now_ms)
            accounted += 1 + told
        if sweep:
            quiet = throttle.left_out(now_ms)
            lines += [now_ms] * len(quiet)
            accounted += sum(count for _, count in quiet)
        assert len(throttle) <= 4
        assert sum(at_ms > now_ms - 1_000 for at_ms in lines) <= 4 + 3, "three keys, the others, three that were swept"
    while quiet := throttle.left_out(now_ms := now_ms + 2_000):
        accounted += sum(count for _, count in quiet)
    assert accounted == len(events)
