"""The history's bounds, and that a place in it leads on without loss or is refused."""

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.change import Change, ChangeKind, PoolChange
from poolmuster.model.registration import Pool
from poolmuster.registry.change_log import OVERHEAD_BYTES, ChangeLog, change_bytes
from tests.support.registrations import pool


def change(number: int, clock_ms: int = 0, padding: int = 0) -> PoolChange:
    before = pool("a", x="x" * padding) if padding else None
    return Change(number=number, kind=ChangeKind.CHANGED, at_ms=0, monotonic_ms=clock_ms, before=before)


@given(
    sizes=st.lists(st.integers(0, 400), max_size=40),
    limit_changes=st.integers(1, 10),
    limit_bytes=st.integers(1, 3000),
    at_most=st.none() | st.integers(1, 5),
)
def test_it_holds_the_latest_changes_within_both_bounds(
    sizes: list[int], limit_changes: int, limit_bytes: int, at_most: int | None
) -> None:
    change_log = ChangeLog[Pool](limit_changes, limit_bytes, 0)
    changes = [change(number, number, size) for number, size in enumerate(sizes, 1)]
    for each in changes:
        change_log.append(each)
        assert len(change_log) <= limit_changes
        assert (
            change_log.size_bytes
            == sum(map(change_bytes, (change_log.since(change_log.first_resumable) or [])))
            <= limit_bytes
        )
    held = change_log.since(change_log.first_resumable) or []
    assert held == changes[len(changes) - len(held) :]
    assert change_log.number == len(changes)
    assert change_log.first_resumable == len(changes) - len(held)
    for number in range(-1, len(changes) + 3):
        expected = changes[number:][:at_most] if change_log.first_resumable <= number <= change_log.number else None
        assert change_log.since(number, at_most) == expected


def test_it_forgets_no_more_than_it_must() -> None:
    change_log = ChangeLog[Pool](100, 3 * OVERHEAD_BYTES, 0)
    for number in range(1, 6):
        change_log.append(change(number))
    assert [each.number for each in (change_log.since(change_log.first_resumable) or [])] == [3, 4, 5]


@given(st.integers(0, 300), st.none() | st.integers(1, 300))
def test_a_place_far_back_leads_on_like_one_nearby(number: int, at_most: int | None) -> None:
    change_log = ChangeLog[Pool](1000, 1 << 30, 0)
    for each in range(1, 301):
        change_log.append(change(each))
    found = change_log.since(number, at_most)
    assert found is not None
    assert [each.number for each in found] == list(range(number + 1, 301))[:at_most]


def test_it_tells_how_far_back_it_knows_and_what_is_newer() -> None:
    change_log = ChangeLog[Pool](3, 1 << 20, 50)
    assert change_log.known_since_ms == 50
    for number in range(1, 6):
        change_log.append(change(number, 100 * number))
    assert change_log.known_since_ms == 200
    assert [each.number for each in change_log.newer_than(400)] == [5]
    assert [each.number for each in change_log.newer_than(0)] == [3, 4, 5]
    assert change_log.newer_than(500) == []
