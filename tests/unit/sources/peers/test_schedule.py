"""How and when an address is read: each row of the module's tables."""

import pytest

from poolmuster.sources.peers.schedule import (
    POLL_MS,
    RETRY_MS,
    STEADY_MS,
    STREAM_RETRY_LIMIT_MS,
    SUSPECT_MS,
    SYNC_RETRY_MS,
    ReadEnd,
    ReadMode,
    ReadSchedule,
)

T0 = 1_000_000


def mode(
    schedule: ReadSchedule,
    now_ms: int = T0,
    *,
    own: bool = False,
    load_balancer: bool = False,
    stream_delivers: bool = False,
) -> ReadMode:
    return schedule.mode(now_ms, own=own, load_balancer=load_balancer, stream_delivers=stream_delivers)


def failed(schedule: ReadSchedule, times: int = 1, now_ms: int = T0) -> ReadSchedule:
    """Streams that end at once, without a message."""
    for _ in range(times):
        schedule.stream_ended(now_ms, now_ms, delivered=False, refused=False)
    return schedule


def test_a_peer_is_read_by_a_stream() -> None:
    assert mode(ReadSchedule(T0)) is ReadMode.STREAM


def test_several_instances_and_this_one_are_polled() -> None:
    assert mode(ReadSchedule(T0), load_balancer=True) is ReadMode.POLL
    assert mode(ReadSchedule(T0), own=True) is ReadMode.POLL
    assert mode(ReadSchedule(T0), own=True, stream_delivers=True) is ReadMode.POLL


def test_a_tried_stream_that_delivers_is_all_that_is_read() -> None:
    schedule = failed(ReadSchedule(T0))
    assert mode(schedule, stream_delivers=True) is ReadMode.AWAIT_STREAM


def test_streams_that_fail_are_tried_beside_polls_less_and_less_often() -> None:
    schedule, now_ms, waits = ReadSchedule(T0), T0, []
    for _ in range(7):
        failed(schedule, now_ms=now_ms)
        wait_ms = next(wait for wait in range(0, 20_000, 500) if mode(schedule, now_ms + wait) is not ReadMode.POLL)
        assert mode(schedule, now_ms + wait_ms) is ReadMode.POLL_AND_TRY_STREAM
        waits.append(wait_ms)
        now_ms += wait_ms
    assert waits == [1_000, 2_000, 4_000, 8_000, *[STREAM_RETRY_LIMIT_MS] * 3]


def test_the_end_of_a_long_stream_and_a_refusal_do_not_speak_against_streams() -> None:
    schedule = failed(ReadSchedule(T0))
    schedule.stream_ended(T0, T0 + STEADY_MS, delivered=True, refused=False)
    assert mode(schedule, T0 + STEADY_MS) is ReadMode.STREAM
    failed(schedule, now_ms=T0 + STEADY_MS)
    schedule.stream_ended(T0 + STEADY_MS, T0 + STEADY_MS, delivered=False, refused=True)
    assert mode(schedule, T0 + STEADY_MS + 1_000) is ReadMode.STREAM


@pytest.mark.parametrize(("lasted_ms", "delivered"), [(STEADY_MS - 1, True), (STEADY_MS, False)])
def test_a_short_stream_and_one_without_a_message_have_failed(lasted_ms: int, delivered: bool) -> None:
    schedule = ReadSchedule(T0)
    schedule.stream_ended(T0, T0 + lasted_ms, delivered=delivered, refused=False)
    assert mode(schedule, T0 + lasted_ms) is ReadMode.POLL


def test_after_a_failed_poll_a_good_one_lets_a_stream_be_tried_at_once() -> None:
    schedule = failed(ReadSchedule(T0), times=5)
    schedule.poll_ended(T0 + 1, good=True)
    assert mode(schedule, T0 + 1) is ReadMode.POLL
    schedule.poll_ended(T0 + 2, good=False)
    schedule.poll_ended(T0 + 3, good=True)
    assert mode(schedule, T0 + 3) is ReadMode.POLL_AND_TRY_STREAM


def test_while_it_is_not_clear_which_instance_answers_there_are_only_quick_polls() -> None:
    schedule = ReadSchedule(T0)
    schedule.suspect(T0)
    for now_ms in range(T0, T0 + SUSPECT_MS, 100):
        assert mode(schedule, now_ms) is ReadMode.POLL
        assert schedule.next_read_ms(ReadEnd.POLLED, now_ms, now_ms) == now_ms + RETRY_MS
    assert mode(schedule, T0 + SUSPECT_MS) is ReadMode.POLL_AND_TRY_STREAM
    assert schedule.next_read_ms(ReadEnd.POLLED, T0 + SUSPECT_MS, T0 + SUSPECT_MS) == T0 + SUSPECT_MS + POLL_MS


@pytest.mark.parametrize(
    ("end", "lasted_ms", "next_ms"),
    [
        (ReadEnd.POLLED, 300, POLL_MS),
        (ReadEnd.POLLED, 5_000, 5_000),
        (ReadEnd.STREAM_ENDED, 300, 300 + RETRY_MS),
        (ReadEnd.FAILED, 300, 300 + RETRY_MS),
        (ReadEnd.NEEDS_REPAIR, 300, POLL_MS),
        (ReadEnd.NEEDS_REPAIR, 3_000, 3_000),
    ],
)
def test_the_next_read_depends_on_how_the_last_ended(end: ReadEnd, lasted_ms: int, next_ms: int) -> None:
    assert ReadSchedule(T0).next_read_ms(end, T0, T0 + lasted_ms) == T0 + next_ms


def test_a_snapshot_is_taken_again_after_a_second_or_once_its_peer_is_trusted() -> None:
    schedule = ReadSchedule(T0)
    assert schedule.is_sync_due(T0, trusted=False)
    schedule.sync_started(T0, trusted=False)
    assert not schedule.is_sync_due(T0 + SYNC_RETRY_MS - 1, trusted=False)
    assert schedule.is_sync_due(T0 + 1, trusted=True)
    schedule.sync_started(T0 + 1, trusted=True)
    assert not schedule.is_sync_due(T0 + SYNC_RETRY_MS, trusted=True)
    assert schedule.is_sync_due(T0 + 1 + SYNC_RETRY_MS, trusted=True)
    assert schedule.is_sync_due(T0 + 1 + SYNC_RETRY_MS, trusted=False)
