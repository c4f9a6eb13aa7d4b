"""Regions whose replication may have stalled: silent after a lease, for an hour at most, never for an outage."""

import pytest

from poolmuster.registry.table_scan import EXPECTED_GAP_MS
from tests.unit.registry.tables import HOUR_MS, LEASE_MS, PoolItem, Reads, item, left


@pytest.fixture
def reads() -> Reads:
    return Reads()


def foreign(at_ms: int, name: str = "a", region: str | None = "far") -> PoolItem:
    """An item written in another region at ``at_ms``."""
    return item(name, at_ms + LEASE_MS, region=region)


def test_a_region_whose_pools_ended_and_that_writes_no_more_is_silent_after_a_lease(reads: Reads) -> None:
    reads.read(0)
    reads.read(1000, foreign(1000))
    for at_ms in range(2000, 1000 + LEASE_MS, 1000):
        reads.read(at_ms, foreign(1000))
        assert reads.silent(at_ms) == {}
    reads.read(1000 + LEASE_MS, foreign(1000))
    assert reads.silent(1000 + LEASE_MS) == {"far": LEASE_MS}


def test_a_region_heals_with_the_next_write_that_is_seen(reads: Reads) -> None:
    reads.read(0)
    for at_ms in range(1000, 30_000, 1000):
        reads.read(at_ms, foreign(1000))
    assert reads.silent(30_000) == {"far": 29_000}
    reads.read(30_000, foreign(29_000))
    assert reads.silent(30_000) == {}


def test_a_region_is_silent_for_an_hour_at_most_and_then_forgotten(reads: Reads) -> None:
    reads.read(0)
    reads.read(1000, foreign(1000))
    for at_ms in range(4000, HOUR_MS + 1000, 3000):
        reads.read(at_ms, foreign(1000))
    assert reads.silent(HOUR_MS + 999) != {}
    assert reads.silent(HOUR_MS + 1000) == {}
    for at_ms in range(HOUR_MS + 1000, HOUR_MS + 5000, 1000):
        reads.read(at_ms, foreign(1000))
    assert reads.reader._regions == {}


def test_a_region_that_deregistered_all_it_had_is_not_silent(reads: Reads) -> None:
    reads.read(0)
    reads.read(1000, foreign(1000))
    for at_ms in range(2000, 30_000, 1000):
        reads.read(at_ms, left(region="far"))
    assert reads.silent(30_000) == {}


@pytest.mark.parametrize("region", ["home", None])
def test_the_own_region_and_no_region_are_never_silent(reads: Reads, region: str | None) -> None:
    reads.read(0)
    for at_ms in range(1000, 60_000, 1000):
        reads.read(at_ms, foreign(1000, region=region))
    assert reads.silent(60_000) == {}


def test_a_region_in_which_one_pool_died_and_another_renews_is_not_silent(reads: Reads) -> None:
    reads.read(0)
    for at_ms in range(1000, 60_000, 1000):
        reads.read(at_ms, foreign(1000, "dead"), foreign(at_ms, "live"))
    assert reads.silent(60_000) == {}


def test_while_the_table_cannot_be_read_no_region_is_blamed(reads: Reads) -> None:
    reads.read(0)
    reads.read(1000, foreign(1000))
    assert reads.silent(301_000) == {}
    reads.read(301_000, foreign(1000))
    assert reads.silent(301_000) == {}, "the outage is credited"
    for at_ms in range(302_000, 301_000 + LEASE_MS, 1000):
        reads.read(at_ms, foreign(1000))
    assert reads.silent(301_000 + LEASE_MS) == {"far": LEASE_MS + EXPECTED_GAP_MS}


def test_a_reader_that_starts_while_a_region_is_silent_knows_it_from_the_stored_ends(reads: Reads) -> None:
    reads.read(0, foreign(-60_000), foreign(-90_000, "b"), item("live", LEASE_MS, region="home"))
    assert reads.silent(0) == {"far": 60_000}


def test_a_reader_that_starts_while_a_region_writes_blames_it_for_nothing(reads: Reads) -> None:
    reads.read(0, foreign(-60_000, "dead"), foreign(-4_000, "live"))
    assert reads.silent(0) == {}
    reads.read(1000, foreign(-60_000, "dead"), foreign(1_000, "live"))
    assert reads.silent(1000) == {}


def test_before_the_first_good_read_there_is_no_region(reads: Reads) -> None:
    assert reads.silent(0) == {}
