"""What one boot of a peer says, and how late it is."""

import msgspec
import pytest

from poolmuster.core.claims import Claim, Leaving
from poolmuster.core.lease_time import LeaseTime
from poolmuster.core.peer_feed import FORGET_EVERY_MS, Misread, PeerFeed, whole_list_of
from poolmuster.core.peer_messages import Batch, Entry, Left, Registered, Renewed, Statement
from poolmuster.core.transit import DRIFT_DIVISOR, Transit
from poolmuster.model.change import LeaveReason
from tests.support.registrations import body, key

LEASE_MS = 15_000
NOBODY = Statement(warm=True, named=True)


def batch(*entries: Entry, boot_id: str = "b", after: int = 0, seq: int = 1) -> Batch:
    return Batch(boot_id=boot_id, up_ms=0, sent_ms=0, after=after, seq=seq, statement=NOBODY, entries=entries)


def registered(number: int = 1, text: bytes | None = None, remaining_ms: int = 10_000) -> Registered:
    raw = msgspec.Raw(body("a") if text is None else text)
    return Registered(number=number, registration=raw, relay_id="r", lease_ms=LEASE_MS, remaining_ms=remaining_ms)


def left(name: str = "a") -> Left:
    return Left(
        cluster_id="c",
        namespace="n",
        dgd_name=name,
        relay_id="r",
        since_ms=100,
        ended_since_ms=2_000,
        kept_ms=9_000,
        reason=LeaveReason.NO_MODELS,
    )


def test_what_remains_is_counted_from_when_it_was_said() -> None:
    feed = PeerFeed("b")
    [claim] = feed.take(batch(registered()), 50_000)
    assert isinstance(claim, Claim)
    assert (claim.renewed_ms, claim.lease_ms, claim.holder, claim.relay_id) == (45_000, LEASE_MS, "b", "r")
    [renewed] = feed.take(batch(Renewed(number=1, remaining_ms=LEASE_MS), after=1, seq=2), 50_100)
    assert isinstance(renewed, Claim)
    assert (renewed.renewed_ms, renewed.registration) == (50_100, claim.registration)


def test_a_leaving_is_counted_from_when_it_was_said() -> None:
    [leaving] = PeerFeed("b").take(batch(left()), 50_000)
    assert isinstance(leaving, Leaving)
    assert (leaving.left_ms, leaving.ended_ms, leaving.kept_until_ms) == (49_900, 48_000, 59_000)
    assert (leaving.departure.key, leaving.departure.reason) == (key(), LeaveReason.NO_MODELS)


@pytest.mark.parametrize(
    ("bad", "asks_after"),
    [
        (batch(boot_id="other"), 0),
        (batch(after=2, seq=3), 1),
        (batch(Renewed(number=7, remaining_ms=1), after=1, seq=2), 0),
    ],
)
def test_what_does_not_follow_changes_nothing_and_says_where_to_begin(bad: Batch, asks_after: int) -> None:
    feed = PeerFeed("b")
    feed.take(batch(registered()), 0)
    with pytest.raises(Misread) as raised:
        feed.take(bad, 0)
    assert raised.value.seq == asks_after
    assert feed.seq == 1


def test_an_entry_that_is_not_valid_is_counted_and_hides_no_other() -> None:
    feed = PeerFeed("b")
    said = feed.take(batch(registered(1, b'{"a": 1}'), left("."), registered(2)), 0)
    assert len(said) == 1
    assert feed.skipped == 2
    assert feed.take(batch(Renewed(number=1, remaining_ms=1), after=1, seq=2), 0) == []
    assert [
        len(each) if isinstance(each, list) else each for each in whole_list_of([registered(), left(".")], "b", 0)
    ] == [
        1,
        1,
    ]


def test_a_number_that_was_not_renewed_for_two_leases_is_forgotten() -> None:
    feed = PeerFeed("b")
    feed.take(batch(registered(1)), 0)
    feed.take(batch(registered(2), after=1, seq=2), FORGET_EVERY_MS + 1)
    with pytest.raises(Misread):
        feed.take(batch(Renewed(number=1, remaining_ms=1), after=2, seq=3), FORGET_EVERY_MS + 2)
    assert feed.take(batch(Renewed(number=2, remaining_ms=1), after=2, seq=3), FORGET_EVERY_MS + 2)


def test_delay_above_the_smallest_is_taken_off() -> None:
    transit = Transit()
    assert transit.said_ms(7_000_000, 1_050) == 1_050
    assert transit.said_ms(7_001_000, 22_050) == 2_050 + 21
    assert transit.said_ms(7_022_000, 23_010) == 23_010
    assert transit.said_ms(7_022_100, 23_150) == 23_110


def test_the_smallest_follows_clocks_that_drift_apart_and_no_faster() -> None:
    transit = Transit()
    transit.said_ms(0, 0)
    for quarter in range(1, 4_001):
        sent_ms, drift_ms = 250 * quarter, quarter // 4
        assert sent_ms + drift_ms - transit.said_ms(sent_ms, sent_ms + drift_ms) in (0, 1)
    late_ms = 1_000_000 + 1_000 + 20_000
    assert transit.said_ms(1_000_000, late_ms) <= 1_000_000 + 1_000 + 20_000 // DRIFT_DIVISOR + 1


def test_l5_lease_time_stands_still_in_a_pause() -> None:
    lease_time = LeaseTime()
    lease_time.pause(20_000, 5_000)
    lease_time.pause(25_000, 0)
    assert lease_time.between_ms(10_000, 30_000) == 15_000
    assert lease_time.between_ms(17_000, 18_000) == 0
    assert lease_time.between_ms(17_000, 21_000) == 1_000
    assert lease_time.between_ms(20_000, 21_000) == 1_000


def test_an_older_number_of_a_pool_that_is_repeated_does_not_take_the_place_of_the_newer() -> None:
    feed = PeerFeed("b")
    feed.take(batch(registered(2), seq=2), 0)
    feed.take(batch(registered(1), seq=2), 10)
    feed.take(batch(registered(3), after=2, seq=3), 20)
    with pytest.raises(Misread):
        feed.take(batch(Renewed(number=2, remaining_ms=1), after=3, seq=4), 30)
    assert feed.take(batch(Renewed(number=3, remaining_ms=1), after=3, seq=4), 30)
