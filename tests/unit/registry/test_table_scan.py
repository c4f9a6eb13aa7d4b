"""What a read of the whole table says: each row of the module's table, and what follows for completeness and puts."""

import pytest

from poolmuster.model.change import DeregistrationReason
from poolmuster.registry.table_scan import EXPECTED_GAP_MS, RECENT_MS, TableItem
from poolmuster.registry.updates import Renewal
from tests.support.registrations import key, pool
from tests.unit.registry.tables import HOUR_MS, LEASE_MS, T0_MS, WALL_MS, Listed, Reads, item, left, renewed


@pytest.fixture
def reads() -> Reads:
    return Reads()


# The first good read.


@pytest.mark.parametrize(
    ("ends_in_ms", "remaining_ms"),
    [(1, 1), (LEASE_MS - 1, LEASE_MS - 1), (LEASE_MS, LEASE_MS), (HOUR_MS, LEASE_MS), (0, None), (-1, None)],
)
def test_l4_at_the_first_good_read_an_entry_lives_to_its_stored_end_one_lease_at_most(
    reads: Reads, ends_in_ms: int, remaining_ms: int | None
) -> None:
    update = reads.read(0, item(ends_in_ms=ends_in_ms))
    assert renewed(update) == ({} if remaining_ms is None else {"a": remaining_ms})
    assert update.credit_ms == 0
    assert update.expire


def test_l4_the_lease_is_the_items_own_where_it_bears_one(reads: Reads) -> None:
    assert renewed(reads.read(0, item(ends_in_ms=HOUR_MS, lease_ms=60_000))) == {"a": 60_000}
    update = reads.read(1000, item(ends_in_ms=HOUR_MS + 1, lease_ms=2_000))
    assert update.renewals == (Renewal(update.renewals[0].record, "r", 2_000, 2_000),)


# Every later one.


@pytest.mark.parametrize("moved_ms", [1, -1, HOUR_MS, -HOUR_MS])
def test_l4_another_stored_end_higher_or_lower_is_a_renewal_for_a_whole_lease(reads: Reads, moved_ms: int) -> None:
    reads.read(0, item(ends_in_ms=5_000))
    assert renewed(reads.read(1000, item(ends_in_ms=5_000 + moved_ms))) == {"a": LEASE_MS}


def test_l4_the_same_stored_end_is_no_renewal_though_it_lies_ahead(reads: Reads) -> None:
    reads.read(0, item(ends_in_ms=HOUR_MS))
    assert renewed(reads.read(1000, item(ends_in_ms=HOUR_MS))) == {}


def test_l4_other_facts_under_the_same_end_were_written_and_so_renew(reads: Reads) -> None:
    reads.read(0, item(ends_in_ms=5_000))
    other = TableItem(key=key(), record=pool("a", weight=3), relay_id="r", ends_ms=WALL_MS + 5_000)
    assert renewed(reads.read(1000, other)) == {"a": LEASE_MS}


@pytest.mark.parametrize(("ends_in_ms", "lives"), [(1001, True), (1000, False), (-HOUR_MS, False), (HOUR_MS, True)])
def test_l4_an_entry_that_the_previous_read_did_not_have_is_renewed_unless_its_end_has_passed(
    reads: Reads, ends_in_ms: int, lives: bool
) -> None:
    reads.read(0)
    assert renewed(reads.read(1000, item(ends_in_ms=ends_in_ms))) == ({"a": LEASE_MS} if lives else {})


def test_l4_an_item_missing_from_a_good_read_counts_as_one_not_renewed(reads: Reads) -> None:
    reads.read(0, item(ends_in_ms=LEASE_MS))
    update = reads.read(1000)
    assert (update.renewals, update.deregistrations) == ((), ())
    assert renewed(reads.read(2000, item(ends_in_ms=LEASE_MS))) == {"a": LEASE_MS}


def test_an_end_of_zero_is_a_deregistration_and_is_told_once(reads: Reads) -> None:
    reads.read(0, item(ends_in_ms=LEASE_MS))
    update = reads.read(1000, left())
    (deregistration,) = update.deregistrations
    assert (deregistration.key, deregistration.relay_id, deregistration.reason) == (
        key(),
        "r",
        DeregistrationReason.OPERATOR,
    )
    assert deregistration.detail == "gone"
    assert update.renewals == ()
    assert reads.read(2000, left()).deregistrations == ()
    assert renewed(reads.read(3000, item(ends_in_ms=1))) == {"a": LEASE_MS}


def test_a_deregistration_that_the_first_read_shows_is_told_too(reads: Reads) -> None:
    """A reader that starts may hold nothing of the key, but nothing is lost by saying it."""
    assert len(reads.read(0, left()).deregistrations) == 1


@pytest.mark.parametrize("ends_in_ms", [-1, -HOUR_MS, 1 - WALL_MS])
def test_only_zero_means_deregistered(reads: Reads, ends_in_ms: int) -> None:
    reads.read(0, item(ends_in_ms=LEASE_MS))
    update = reads.read(1000, item(ends_in_ms=ends_in_ms))
    assert update.deregistrations == ()
    assert renewed(update) == {"a": LEASE_MS}


# L5: time in which no renewal could be seen.


@pytest.mark.parametrize(
    ("gap_ms", "credit_ms"),
    [(0, 0), (EXPECTED_GAP_MS, 0), (EXPECTED_GAP_MS + 1, 1), (300_000, 300_000 - EXPECTED_GAP_MS)],
)
def test_l5_between_the_starts_of_two_good_reads_what_exceeds_three_seconds_is_credited(
    reads: Reads, gap_ms: int, credit_ms: int
) -> None:
    reads.read(0)
    assert reads.read(gap_ms).credit_ms == credit_ms
    assert reads.read(gap_ms + 1000).credit_ms == 0


def test_l5_at_a_good_read_the_excess_is_added_before_renewals_count_and_leases_end() -> None:
    """In any other order the dead pool would go at once, or the renewed one would live too long."""
    listed = Listed()
    listed.read(0, WALL_MS, [item("dead", LEASE_MS), item("live", LEASE_MS)])
    outage_ms = 300_000
    listed.read(outage_ms, WALL_MS + outage_ms, [item("dead", LEASE_MS), item("live", outage_ms + LEASE_MS)])
    assert listed.removed == []
    dead, live = listed.leases.get(key("dead")), listed.leases.get(key("live"))
    assert dead is not None
    assert live is not None
    assert listed.leases.remaining_ms(dead, outage_ms) == LEASE_MS - EXPECTED_GAP_MS
    assert listed.leases.remaining_ms(live, outage_ms) == LEASE_MS


# A table just back from an outage.


@pytest.mark.parametrize(
    ("live", "ended", "settles"),
    [(0, 0, False), (2, 2, False), (2, 3, True), (0, 1, True), (3, 0, False)],
)
def test_complete_only_after_a_lease_where_more_had_ended_within_the_hour_than_live(
    reads: Reads, live: int, ended: int, settles: bool
) -> None:
    items = [item(f"l{n}", LEASE_MS) for n in range(live)] + [item(f"e{n}", -1 - n) for n in range(ended)]
    reads.read(0, *items)
    assert reads.reader.warm_at_ms == (T0_MS + LEASE_MS if settles else None)


def test_what_ended_an_hour_ago_or_left_says_nothing_of_an_outage(reads: Reads) -> None:
    reads.read(0, item("old", -RECENT_MS), left("gone"))
    assert reads.reader.warm_at_ms is None


def test_a_later_read_never_makes_the_list_settle_again(reads: Reads) -> None:
    reads.read(0, item("a", LEASE_MS))
    reads.read(1000, item("a", LEASE_MS), *(item(f"e{n}", -1) for n in range(5)))
    assert reads.reader.warm_at_ms is None


# Which put changes what the list shows.


def test_a_put_of_what_lives_is_a_renewal_and_all_else_is_news(reads: Reads) -> None:
    now_ms = T0_MS
    assert not reads.reader.is_renewal(pool("a"), now_ms)
    reads.read(0, item(ends_in_ms=LEASE_MS), item("ended", -1), left("left"))
    assert reads.reader.is_renewal(pool("a"), now_ms)
    assert not reads.reader.is_renewal(pool("a", weight=1), now_ms)
    assert not reads.reader.is_renewal(pool("ended"), now_ms)
    assert not reads.reader.is_renewal(pool("left"), now_ms)
    assert reads.reader.is_renewal(pool("a"), now_ms + LEASE_MS - 1)
    assert not reads.reader.is_renewal(pool("a"), now_ms + LEASE_MS), "it ended, so a put adds it"
