"""What one boot of a peer says, and how late it is."""

import msgspec
import pytest

from poolmuster.model.change import DeregistrationReason
from poolmuster.replication.decoder import EVICT_EVERY_MS, DeltaDecoder, OutOfSync, decode_snapshot
from poolmuster.replication.delay import DRIFT_DIVISOR, DelayEstimator
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.messages import Delta, Deregistered, Entry, Registered, Renewed, SyncSummary
from poolmuster.replication.pause_log import PauseLog
from tests.support.registrations import body, key

LEASE_MS = 15_000
NOBODY = SyncSummary(warmed_up=True, names_resolved=True)


def batch(*entries: Entry, boot_id: str = "b", after: int = 0, seq: int = 1) -> Delta:
    return Delta(boot_id=boot_id, uptime_ms=0, sent_ms=0, after=after, seq=seq, summary=NOBODY, entries=entries)


def registered(number: int = 1, text: bytes | None = None, remaining_ms: int = 10_000) -> Registered:
    raw = msgspec.Raw(body("a") if text is None else text)
    return Registered(number=number, registration=raw, relay_id="r", lease_ms=LEASE_MS, remaining_ms=remaining_ms)


def left(name: str = "a") -> Deregistered:
    return Deregistered(
        cluster_id="c",
        namespace="n",
        dgd_name=name,
        relay_id="r",
        since_ms=100,
        ended_since_ms=2_000,
        kept_ms=9_000,
        reason=DeregistrationReason.NO_MODELS,
    )


def test_what_remains_is_counted_from_when_it_was_said() -> None:
    feed = DeltaDecoder("b")
    [write] = feed.decode(batch(registered()), 50_000)
    assert isinstance(write, Write)
    assert (write.renewed_ms, write.lease_ms, write.origin, write.relay_id) == (45_000, LEASE_MS, "b", "r")
    [renewed] = feed.decode(batch(Renewed(number=1, remaining_ms=LEASE_MS), after=1, seq=2), 50_100)
    assert isinstance(renewed, Write)
    assert (renewed.renewed_ms, renewed.registration) == (50_100, write.registration)


def test_a_leaving_is_counted_from_when_it_was_said() -> None:
    [tombstone] = DeltaDecoder("b").decode(batch(left()), 50_000)
    assert isinstance(tombstone, Tombstone)
    assert (tombstone.left_ms, tombstone.ended_ms, tombstone.kept_until_ms) == (49_900, 48_000, 59_000)
    assert (tombstone.deregistration.key, tombstone.deregistration.reason) == (key(), DeregistrationReason.NO_MODELS)


@pytest.mark.parametrize(
    ("bad", "asks_after"),
    [
        (batch(boot_id="other"), 0),
        (batch(after=2, seq=3), 1),
        (batch(Renewed(number=7, remaining_ms=1), after=1, seq=2), 0),
    ],
)
def test_what_does_not_follow_changes_nothing_and_says_where_to_begin(bad: Delta, asks_after: int) -> None:
    feed = DeltaDecoder("b")
    feed.decode(batch(registered()), 0)
    with pytest.raises(OutOfSync) as raised:
        feed.decode(bad, 0)
    assert raised.value.seq == asks_after
    assert feed.seq == 1


def test_an_entry_that_is_not_valid_is_counted_and_hides_no_other() -> None:
    feed = DeltaDecoder("b")
    said = feed.decode(batch(registered(1, b'{"a": 1}'), left("."), registered(2)), 0)
    assert len(said) == 1
    assert feed.skipped == 2
    assert feed.decode(batch(Renewed(number=1, remaining_ms=1), after=1, seq=2), 0) == []
    assert [
        len(each) if isinstance(each, list) else each for each in decode_snapshot([registered(), left(".")], "b", 0)
    ] == [
        1,
        1,
    ]


def test_a_number_that_was_not_renewed_for_two_leases_is_forgotten() -> None:
    feed = DeltaDecoder("b")
    feed.decode(batch(registered(1)), 0)
    feed.decode(batch(registered(2), after=1, seq=2), EVICT_EVERY_MS + 1)
    with pytest.raises(OutOfSync):
        feed.decode(batch(Renewed(number=1, remaining_ms=1), after=2, seq=3), EVICT_EVERY_MS + 2)
    assert feed.decode(batch(Renewed(number=2, remaining_ms=1), after=2, seq=3), EVICT_EVERY_MS + 2)


def test_delay_above_the_smallest_is_taken_off() -> None:
    transit = DelayEstimator()
    assert transit.to_local_ms(7_000_000, 1_050) == 1_050
    assert transit.to_local_ms(7_001_000, 22_050) == 2_050 + 21
    assert transit.to_local_ms(7_022_000, 23_010) == 23_010
    assert transit.to_local_ms(7_022_100, 23_150) == 23_110


def test_the_smallest_follows_clocks_that_drift_apart_and_no_faster() -> None:
    transit = DelayEstimator()
    transit.to_local_ms(0, 0)
    for quarter in range(1, 4_001):
        sent_ms, drift_ms = 250 * quarter, quarter // 4
        assert sent_ms + drift_ms - transit.to_local_ms(sent_ms, sent_ms + drift_ms) in (0, 1)
    late_ms = 1_000_000 + 1_000 + 20_000
    assert transit.to_local_ms(1_000_000, late_ms) <= 1_000_000 + 1_000 + 20_000 // DRIFT_DIVISOR + 1


def test_l5_lease_time_stands_still_in_a_pause() -> None:
    lease_time = PauseLog()
    lease_time.record(20_000, 5_000)
    lease_time.record(25_000, 0)
    assert lease_time.elapsed_ms(10_000, 30_000) == 15_000
    assert lease_time.elapsed_ms(17_000, 18_000) == 0
    assert lease_time.elapsed_ms(17_000, 21_000) == 1_000
    assert lease_time.elapsed_ms(20_000, 21_000) == 1_000


def test_an_older_number_of_a_pool_that_is_repeated_does_not_take_the_place_of_the_newer() -> None:
    feed = DeltaDecoder("b")
    feed.decode(batch(registered(2), seq=2), 0)
    feed.decode(batch(registered(1), seq=2), 10)
    feed.decode(batch(registered(3), after=2, seq=3), 20)
    with pytest.raises(OutOfSync):
        feed.decode(batch(Renewed(number=2, remaining_ms=1), after=3, seq=4), 30)
    assert feed.decode(batch(Renewed(number=3, remaining_ms=1), after=3, seq=4), 30)
