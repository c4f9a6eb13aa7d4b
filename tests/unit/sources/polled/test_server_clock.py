"""The table's clock: whole seconds of a `Date`, carried on by the monotonic clock."""

from email.utils import formatdate

import pytest

from poolmuster.sources.polled.server_clock import ServerClock

WALL_MS = 1_800_000_000_000


def date(at_ms: int) -> str:
    """The header at ``at_ms``: it has no fractions of a second."""
    return formatdate(at_ms // 1000, usegmt=True)


def test_where_no_date_was_ever_sent_the_wall_clock_serves() -> None:
    clock = ServerClock()
    clock.observe(None, 5)
    assert clock.now_ms(5, WALL_MS) == WALL_MS
    assert clock.skew_ms(5, WALL_MS) == 0


def test_it_is_right_within_half_a_second_and_goes_on_by_the_monotonic_clock_alone() -> None:
    clock = ServerClock()
    clock.observe(date(WALL_MS + 999), 1_000)
    assert clock.now_ms(1_000, 0) == WALL_MS + 500
    assert clock.now_ms(61_000, WALL_MS - 3_600_000) == WALL_MS + 60_500


def test_within_a_second_of_what_is_known_nothing_is_set_anew() -> None:
    """Else the ends of leases would jump to and fro with each answer."""
    clock = ServerClock()
    clock.observe(date(WALL_MS), 0)
    clock.observe(date(WALL_MS + 1000), 100)
    assert clock.now_ms(100, 0) == WALL_MS + 600
    clock.observe(date(WALL_MS + 2000), 200)
    assert clock.now_ms(200, 0) == WALL_MS + 2_500


@pytest.mark.parametrize("ahead_ms", [-3_600_000, -1, 0, 1, 3_600_000])
def test_skew_is_how_far_this_machine_is_ahead(ahead_ms: int) -> None:
    clock = ServerClock()
    clock.observe(date(WALL_MS), 0)
    assert clock.skew_ms(0, WALL_MS + 500 + ahead_ms) == ahead_ms


@pytest.mark.parametrize("told", ["", "yesterday", "Fri, 99 Foo 2027 00:00:00 GMT"])
def test_a_date_that_is_none_is_not_heard(told: str) -> None:
    clock = ServerClock()
    clock.observe(date(WALL_MS), 0)
    clock.observe(told, 0)
    assert abs(clock.now_ms(0, 0) - WALL_MS) <= 500


@pytest.mark.parametrize(
    "text",
    ["", "soon", "Mon, 30 Nov 99999999999999999999 10:00:00 GMT", "Mon, 30 Nov 2026 10:00:00 +9999999999999999999999"],
)
def test_what_is_no_date_is_not_heard(text: str) -> None:
    clock = ServerClock()
    clock.observe(text, 0)
    assert clock.now_ms(0, WALL_MS) == WALL_MS
