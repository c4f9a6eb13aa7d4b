"""Messages of one boot of a peer, decoded in order, and the delay of a connection."""

import msgspec
import pytest

from poolmuster.model.change import DeregistrationReason
from poolmuster.replication.decoder import (
    DRIFT_DIVISOR,
    EVICT_EVERY_MS,
    DelayEstimator,
    DeltaDecoder,
    OutOfSync,
    decode_snapshot,
)
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.messages import Delta, Deregistered, Entry, Registered, Renewed, SyncSummary
from tests.support.registrations import body, key

LEASE_MS = 15_000
SUMMARY = SyncSummary(warmed_up=True, names_resolved=True)


def delta(*entries: Entry, boot_id: str = "b", after: int = 0, seq: int = 1) -> Delta:
    return Delta(boot_id=boot_id, uptime_ms=0, sent_ms=0, after=after, seq=seq, summary=SUMMARY, entries=entries)


def registered(number: int = 1, text: bytes | None = None, remaining_ms: int = 10_000) -> Registered:
    raw = msgspec.Raw(body("a") if text is None else text)
    return Registered(number=number, registration=raw, relay_id="r", lease_ms=LEASE_MS, remaining_ms=remaining_ms)


def deregistered(name: str = "a") -> Deregistered:
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


def test_what_remains_of_a_lease_counts_from_when_it_was_sent() -> None:
    decoder = DeltaDecoder("b")
    [write] = decoder.decode(delta(registered()), 50_000)
    assert isinstance(write, Write)
    assert (write.renewed_ms, write.lease_ms, write.origin, write.relay_id) == (45_000, LEASE_MS, "b", "r")
    [renewed] = decoder.decode(delta(Renewed(number=1, remaining_ms=LEASE_MS), after=1, seq=2), 50_100)
    assert isinstance(renewed, Write)
    assert (renewed.renewed_ms, renewed.registration) == (50_100, write.registration)


def test_what_was_polled_has_the_uncertainty_of_its_message_and_a_snapshot_adds_that_of_its_sender() -> None:
    decoder = DeltaDecoder("b")
    for message in (delta(registered()), delta(Renewed(number=1, remaining_ms=LEASE_MS), after=1, seq=2)):
        [write] = decoder.decode(message, 50_000, 2_800)
        assert isinstance(write, Write)
        assert write.uncertainty_ms == 2_800
    for known_ms, expected_ms in ((0, 40), (2_800, 2_840), (2**60, LEASE_MS + 40)):
        entry = msgspec.structs.replace(registered(), uncertainty_ms=known_ms)
        [copied], _ = decode_snapshot([entry], "b", 50_000, 40)
        assert isinstance(copied, Write)
        assert (copied.renewed_ms, copied.uncertainty_ms) == (45_000, expected_ms)


def test_a_tombstone_counts_from_when_it_was_sent() -> None:
    [tombstone] = DeltaDecoder("b").decode(delta(deregistered()), 50_000)
    assert isinstance(tombstone, Tombstone)
    assert (tombstone.deregistered_ms, tombstone.ended_ms, tombstone.kept_until_ms) == (49_900, 48_000, 59_000)
    assert (tombstone.deregistration.key, tombstone.deregistration.reason) == (key(), DeregistrationReason.NO_MODELS)


@pytest.mark.parametrize(
    ("bad", "ask_after"),
    [
        (delta(boot_id="other"), 0),
        (delta(after=2, seq=3), 1),
        (delta(Renewed(number=7, remaining_ms=1), after=1, seq=2), 0),
    ],
)
def test_a_delta_that_does_not_follow_changes_nothing_and_names_where_to_resume(bad: Delta, ask_after: int) -> None:
    decoder = DeltaDecoder("b")
    decoder.decode(delta(registered()), 0)
    with pytest.raises(OutOfSync) as raised:
        decoder.decode(bad, 0)
    assert raised.value.seq == ask_after
    assert decoder.seq == 1


def test_an_entry_that_is_not_valid_is_counted_and_hides_no_other() -> None:
    decoder = DeltaDecoder("b")
    items = decoder.decode(delta(registered(1, b'{"a": 1}'), deregistered("."), registered(2)), 0)
    assert len(items) == 1
    assert decoder.skipped == 2
    assert decoder.decode(delta(Renewed(number=1, remaining_ms=1), after=1, seq=2), 0) == []
    assert len(decoder.decode(delta(registered(1), after=2, seq=3), 0)) == 1
    items, skipped = decode_snapshot([registered(), deregistered(".")], "b", 0)
    assert (len(items), skipped) == (1, 1)


def test_a_number_that_was_not_renewed_for_two_leases_is_evicted() -> None:
    decoder = DeltaDecoder("b")
    decoder.decode(delta(registered(1)), 0)
    decoder.decode(delta(registered(2, body("b")), after=1, seq=2), EVICT_EVERY_MS + 1)
    with pytest.raises(OutOfSync):
        decoder.decode(delta(Renewed(number=1, remaining_ms=1), after=2, seq=3), EVICT_EVERY_MS + 2)
    assert decoder.decode(delta(Renewed(number=2, remaining_ms=1), after=2, seq=3), EVICT_EVERY_MS + 2)


def test_delay_above_the_smallest_is_taken_off() -> None:
    delay = DelayEstimator()
    assert delay.to_local_ms(7_000_000, 1_050) == 1_050
    assert delay.to_local_ms(7_001_000, 22_050) == 2_050 + 21
    assert delay.to_local_ms(7_022_000, 23_010) == 23_010
    assert delay.to_local_ms(7_022_100, 23_150) == 23_110


def test_the_smallest_delay_follows_clocks_that_drift_apart_and_no_faster() -> None:
    delay = DelayEstimator()
    delay.to_local_ms(0, 0)
    for quarter in range(1, 4_001):
        sent_ms, drift_ms = 250 * quarter, quarter // 4
        assert sent_ms + drift_ms - delay.to_local_ms(sent_ms, sent_ms + drift_ms) in (0, 1)
    late_ms = 1_000_000 + 1_000 + 20_000
    assert delay.to_local_ms(1_000_000, late_ms) <= 1_000_000 + 1_000 + 20_000 // DRIFT_DIVISOR + 1


def test_an_earlier_number_of_a_pool_that_is_repeated_does_not_replace_the_later() -> None:
    decoder = DeltaDecoder("b")
    decoder.decode(delta(registered(2), seq=2), 0)
    decoder.decode(delta(registered(1), seq=2), 10)
    decoder.decode(delta(registered(3), after=2, seq=3), 20)
    with pytest.raises(OutOfSync):
        decoder.decode(delta(Renewed(number=2, remaining_ms=1), after=3, seq=4), 30)
    assert decoder.decode(delta(Renewed(number=3, remaining_ms=1), after=3, seq=4), 30)
