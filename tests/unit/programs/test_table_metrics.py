"""What the DynamoDB store tells metrics and the log."""

from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from poolmuster.model.source import SourceReason
from poolmuster.programs.metrics.table import REASONS, TableMetrics
from poolmuster.sources.polled.instrumentation import GOOD, TransitionLog
from poolmuster.sources.polled.table import StoreError


def test_what_the_store_notes_is_counted() -> None:
    registry = CollectorRegistry()
    notes = TableMetrics(registry)
    notes.read(GOOD, 30)
    notes.read(SourceReason.TIMEOUT, 2_000)
    notes.retried(SourceReason.THROTTLED)
    notes.extra_read()
    notes.wrote(GOOD, 8)
    notes.consumed("read", 12.5)
    notes.consumed("write", 1)
    notes.skipped(3)
    notes.clock_ahead(-2_500)
    value = registry.get_sample_value
    assert value("poolmuster_table_reads_total", {"outcome": "good"}) == 1
    assert value("poolmuster_table_reads_total", {"outcome": "timeout"}) == 1
    assert value("poolmuster_table_read_seconds_sum") == 2.03
    assert value("poolmuster_table_read_retries_total", {"reason": "throttled"}) == 1
    assert value("poolmuster_table_extra_reads_total") == 1
    assert value("poolmuster_table_writes_total", {"outcome": "good"}) == 1
    assert value("poolmuster_table_write_seconds_count") == 1
    assert value("poolmuster_table_consumed_units_total", {"kind": "read"}) == 12.5
    assert value("poolmuster_table_consumed_units_total", {"kind": "write"}) == 1
    assert value("poolmuster_table_skipped_items") == 3
    assert value("poolmuster_table_clock_ahead_seconds") == -2.5


def test_every_outcome_stands_at_zero_from_the_start() -> None:
    registry = CollectorRegistry()
    TableMetrics(registry)
    for reason in REASONS:
        assert registry.get_sample_value("poolmuster_table_reads_total", {"outcome": reason}) == 0


def test_trouble_is_logged_when_it_changes_and_when_it_ends() -> None:
    told = TransitionLog(slack_ms=10_000)
    with capture_logs() as logs:
        for reason in (SourceReason.TIMEOUT, SourceReason.TIMEOUT, SourceReason.THROTTLED, None, None):
            told.read_ended(StoreError(reason, "why") if reason else None)
    assert [(line["log_level"], line.get("reason") or line.get("after")) for line in logs] == [
        ("warning", "timeout"),
        ("warning", "throttled"),
        ("info", "throttled"),
    ]


def test_each_item_that_is_skipped_is_logged_once() -> None:
    told = TransitionLog(slack_ms=10_000)
    with capture_logs() as logs:
        for faults in ({"a": "x"}, {"a": "x", "b": "y"}, {}, {"a": "x"}):
            told.invalid_items(faults)
    assert [line["item"] for line in logs] == ["a", "b", "a"]


def test_a_clock_that_is_off_by_more_than_the_slack_is_a_warning_once() -> None:
    told = TransitionLog(slack_ms=10_000)
    with capture_logs() as logs:
        for ahead_ms in (9_999, -11_000, -11_000, 0, 12_000):
            told.clock_ahead(ahead_ms)
    assert [(line["log_level"], line.get("ahead_s")) for line in logs] == [
        ("warning", -11.0),
        ("info", None),
        ("warning", 12.0),
    ]
