"""Metrics of the DynamoDB store. Their names are stable and documented in docs/operations.md."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from poolmuster.model.source import SourceReason
from poolmuster.sources.polled.instrumentation import CANCELLED, GOOD, REFUSED, TableInstrumentation

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
REASONS = (
    SourceReason.TIMEOUT,
    SourceReason.UNREACHABLE,
    SourceReason.DNS_FAILED,
    SourceReason.THROTTLED,
    SourceReason.ACCESS_DENIED,
    SourceReason.CREDENTIALS_EXPIRED,
    SourceReason.CREDENTIALS_MISSING,
    SourceReason.TABLE_MISSING,
    SourceReason.CLOCK_SKEW,
    SourceReason.BAD_ANSWER,
    SourceReason.INTERNAL,
)
"""What can be the matter with a table. Their series stand at 0 from the start, so that a first failure is a rise."""


class TableMetrics(TableInstrumentation):
    """Counts what the store notes, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reads = Counter(
            "poolmuster_table_reads", "Reads of the whole table by outcome", ["outcome"], registry=registry
        )
        self._writes = Counter("poolmuster_table_writes", "Puts by outcome", ["outcome"], registry=registry)
        self._retries = Counter(
            "poolmuster_table_read_retries", "Pages asked for once more, by why", ["reason"], registry=registry
        )
        self._read_seconds = Histogram(
            "poolmuster_table_read_seconds", "How long reads of all pages took", buckets=SECONDS, registry=registry
        )
        self._write_seconds = Histogram(
            "poolmuster_table_write_seconds", "How long puts took", buckets=SECONDS, registry=registry
        )
        self._extra_reads = Counter(
            "poolmuster_table_extra_reads", "Reads begun at once after a write of our own", registry=registry
        )
        units = Counter(
            "poolmuster_table_consumed_units",
            "Capacity units that the table says were used",
            ["kind"],
            registry=registry,
        )
        self._units = {kind: units.labels(kind) for kind in ("read", "write")}
        self._skipped = Gauge(
            "poolmuster_table_skipped_items", "Items of the last good read that could not be parsed", registry=registry
        )
        self._clock_ahead = Gauge(
            "poolmuster_table_clock_ahead_seconds",
            "How far this machine's clock is ahead of the table's, to a second; negative where it is behind",
            registry=registry,
        )
        for outcome in (GOOD, *REASONS):
            self._reads.labels(outcome)
        for reason in REASONS:
            self._retries.labels(reason)
        for outcome in (GOOD, REFUSED, CANCELLED, *REASONS):
            self._writes.labels(outcome)

    def read(self, outcome: str, duration_ms: int) -> None:
        self._reads.labels(outcome).inc()
        self._read_seconds.observe(duration_ms / 1000)

    def retried(self, reason: str) -> None:
        self._retries.labels(reason).inc()

    def extra_read(self) -> None:
        self._extra_reads.inc()

    def wrote(self, outcome: str, duration_ms: int) -> None:
        self._writes.labels(outcome).inc()
        self._write_seconds.observe(duration_ms / 1000)

    def consumed(self, kind: str, units: float) -> None:
        self._units[kind].inc(units)

    def skipped(self, count: int) -> None:
        self._skipped.set(count)

    def clock_ahead(self, ahead_ms: int) -> None:
        self._clock_ahead.set(ahead_ms / 1000)
