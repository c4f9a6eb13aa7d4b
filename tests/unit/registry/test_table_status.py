"""The statuses of a scanned table: unknown, fresh, stale, warming up, and the regions that stalled."""

import pytest

from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.table_scan import STALE_AFTER_MS
from tests.unit.registry.tables import LEASE_MS, T0_MS, Reads, item

FAILURE = (SourceReason.THROTTLED, "busy")


@pytest.fixture
def reads() -> Reads:
    return Reads()


def status(reads: Reads, at_ms: int, failure: tuple[SourceReason, str] | None = None) -> SourceStatus:
    (found, *_) = reads.reader.statuses("t", T0_MS + at_ms, failure)
    assert (found.kind, found.name) == (SourceKind.TABLE, "t")
    return found


def test_l8_a_table_that_was_never_scanned_is_unknown_with_the_reason_of_the_last_failure(reads: Reads) -> None:
    first, failed = status(reads, 0), status(reads, 0, FAILURE)
    assert (first.state, first.reason, first.last_good_ms) == (SourceState.UNKNOWN, SourceReason.WARMING_UP, None)
    assert (failed.state, failed.reason, failed.detail) == (SourceState.UNKNOWN, *FAILURE)


def test_l8_a_good_scan_shows_the_table_as_fresh_for_three_seconds_from_its_start(reads: Reads) -> None:
    reads.read(0)
    fresh = status(reads, STALE_AFTER_MS, FAILURE)
    assert (fresh.state, fresh.reason, fresh.fresh_until_ms) == (SourceState.FRESH, None, T0_MS + STALE_AFTER_MS)
    stale = status(reads, STALE_AFTER_MS + 1)
    assert (stale.state, stale.reason, stale.last_good_ms) == (SourceState.STALE, SourceReason.TIMEOUT, T0_MS)
    assert status(reads, STALE_AFTER_MS + 1, FAILURE).reason is SourceReason.THROTTLED


def test_a_table_whose_leases_had_mostly_ended_warms_up_for_a_lease(reads: Reads) -> None:
    reads.read(0, item(ends_in_ms=-1))
    for at_ms in range(0, LEASE_MS, 1000):
        reads.read(at_ms, item(ends_in_ms=-1))
        warming = status(reads, at_ms, FAILURE)
        assert (warming.state, warming.reason) == (SourceState.STALE, SourceReason.WARMING_UP)
        assert warming.clears_at_ms == T0_MS + LEASE_MS
    reads.read(LEASE_MS, item(ends_in_ms=-1))
    assert status(reads, LEASE_MS).state is SourceState.FRESH


def test_each_stalled_region_has_a_status_with_its_last_write(reads: Reads) -> None:
    reads.read(0, item("a", -1, region="far"), item("b", -2, region="away"), item("c", LEASE_MS))
    _, *regions = reads.reader.statuses("t", T0_MS, None)
    assert [(each.kind, each.name, each.state, each.reason, each.last_good_ms) for each in regions] == [
        (SourceKind.REGION, name, SourceState.STALE, SourceReason.REPLICATION, T0_MS - LEASE_MS - ended_ms)
        for name, ended_ms in (("region:away", 2), ("region:far", 1))
    ]
