"""What is registered here and heard of others becomes one list; rules that the properties do not name."""

import pytest

import poolmuster.core.records as records_module
from poolmuster.core.claims import RELAYS_LIMIT, Claim, Leaving
from poolmuster.core.merging import GRACE_MS, Merging
from poolmuster.core.reading import Reading
from poolmuster.core.records import REMEMBERED_MS
from poolmuster.model.errors import RelayLeft
from tests.support.registrations import departure, key, registration

LEASE_MS = 15_000
T0_MS = 1_000_000


@pytest.fixture
def merging() -> Merging:
    return Merging("me", LEASE_MS)


def claim(
    relay_id: str | None = "r", at_ms: int = T0_MS, *, again: bool = False, name: str = "a", weight: int = 1
) -> Claim:
    return Claim(registration(name, relay_id, weight=weight), LEASE_MS, at_ms, "peer", again)


def leaving(relay_id: str | None, at_ms: int, ended_ms: int) -> Leaving:
    return Leaving(departure("a", relay_id), at_ms, ended_ms, at_ms + LEASE_MS + GRACE_MS)


def told(reading: Reading | None) -> tuple[list[tuple[str | None, int]], list[str | None]]:
    assert reading is not None
    renewed = [(renewal.registration.relay_id, renewal.remaining_ms) for renewal in reading.renewals]
    return renewed, [departed.relay_id for departed in reading.departures]


def test_the_latest_renewal_holds_wherever_it_was_made(merging: Merging) -> None:
    merging.put(registration("a", "r1"), T0_MS)
    assert told(merging.hear([claim("r2", T0_MS - 1)], T0_MS)) == ([], [])
    assert told(merging.hear([claim("r2", T0_MS + 1_000)], T0_MS + 2_000)) == ([("r2", LEASE_MS - 1_000)], [])


def test_a_leaving_beats_an_earlier_claim_that_is_heard_later(merging: Merging) -> None:
    assert told(merging.hear([leaving("r", T0_MS, T0_MS - 1_000)], T0_MS)) == ([], [])
    assert told(merging.hear([claim("r", T0_MS + 50)], T0_MS + 100)) == ([], [])
    assert told(merging.hear([claim("r", T0_MS + 60, again=True)], T0_MS + 100)) == ([("r", LEASE_MS - 40)], [])


def test_a_leaving_heard_ends_the_pool_and_bars_its_relay_here_too(merging: Merging) -> None:
    merging.put(registration("a", "r"), T0_MS)
    assert told(merging.hear([leaving("r", T0_MS + 1_000, T0_MS)], T0_MS + 1_100)) == ([], ["r"])
    with pytest.raises(RelayLeft):
        merging.put(registration("a", "r"), T0_MS + 2_000)
    assert merging.journal.claim(key()) is None
    merging.put(registration("a", "r2"), T0_MS + 2_000)
    merging.put(registration("a", "r"), T0_MS + 2_000)
    [again] = merging.journal.since(0, T0_MS + 2_000)
    assert getattr(again, "again", False)


def test_l5_what_was_renewed_within_a_pause_has_its_whole_lease_here_and_only_here(merging: Merging) -> None:
    merging.paused(T0_MS, 20_000)
    assert told(merging.hear([claim("r", T0_MS - 13_000)], T0_MS)) == ([("r", LEASE_MS)], [])
    [passed_on] = merging.whole(T0_MS)
    assert getattr(passed_on, "remaining_ms", 0) == LEASE_MS - 13_000


def test_a_pool_that_is_over_is_a_record_for_an_hour(merging: Merging) -> None:
    merging.put(registration("a", "r"), T0_MS)
    merging.hear([leaving("x", T0_MS, T0_MS - 1)], T0_MS)
    merging.hear([Leaving(departure("b", "x"), T0_MS, T0_MS, T0_MS + 1_000)], T0_MS)
    merging.forget(T0_MS + LEASE_MS + GRACE_MS)
    assert len(merging) == 1
    assert merging.leave(departure("a", "other"), T0_MS + 20_000) is None
    merging.put(registration("a", "r"), T0_MS + 20_000)
    merging.forget(T0_MS + 60_000)
    assert merging.leave(departure("a", "r"), T0_MS + 60_000) is None
    with pytest.raises(RelayLeft):
        merging.put(registration("a", "r"), T0_MS + 60_000)
    merging.forget(T0_MS + 60_000 + LEASE_MS + REMEMBERED_MS - 1)
    assert len(merging) == 1
    merging.forget(T0_MS + 60_000 + LEASE_MS + REMEMBERED_MS)
    assert len(merging) == 0


def test_records_are_bounded(merging: Merging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "RECORDS_LIMIT", 3)
    for n in range(9):
        merging.put(registration(f"p{n}", "r"), T0_MS)
    merging.forget(T0_MS + 60_000)
    assert len(merging) == 3


def test_a_pool_that_lives_on_because_of_a_pause_is_not_forgotten(merging: Merging) -> None:
    merging.put(registration("a", "r"), T0_MS)
    merging.paused(T0_MS + 60_000, 60_000)
    merging.forget(T0_MS + 60_000)
    assert merging.leave(departure("a", "r"), T0_MS + 60_000) is not None


def test_leaving_what_is_not_known_does_nothing(merging: Merging) -> None:
    assert merging.leave(departure("a"), T0_MS) is None
    assert merging.journal.seq == 0


def test_the_journal_forgets_what_is_over(merging: Merging) -> None:
    merging.put(registration("a", "r"), T0_MS)
    merging.put(registration("b", "r"), T0_MS)
    merging.leave(departure("b", "r"), T0_MS)
    assert len(merging.journal) == 2
    assert len(merging.journal.since(0, T0_MS)) == 2
    assert merging.journal.since(0, T0_MS + LEASE_MS + GRACE_MS) == ()
    merging.journal.forget(T0_MS + LEASE_MS - 1)
    assert len(merging.journal) == 2
    merging.journal.forget(T0_MS + LEASE_MS + GRACE_MS)
    assert len(merging.journal) == 0


def test_relays_of_one_pool_are_remembered_up_to_a_number(merging: Merging) -> None:
    relays = [f"r{n}" for n in range(2 * RELAYS_LIMIT)]
    merging.hear([claim(relay, T0_MS + n) for n, relay in enumerate(relays)], T0_MS + 100)
    merging.hear([leaving(relay, T0_MS + n, T0_MS + n) for n, relay in enumerate(relays)], T0_MS + 100)
    kept = list(merging.whole(T0_MS + 100))
    assert len(kept) == RELAYS_LIMIT
