"""Metrics of the store with peers. Their names are stable and documented in docs/operations.md."""

from collections import Counter as Counts
from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from poolmuster.model.source import SourceReason, SourceState
from poolmuster.sources.peers.instrumentation import DELTA, GOOD, IN, OUT, REFUSED, SNAPSHOT, PeerInstrumentation

LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 3.0, 10.0)
REASONS = (
    SourceReason.TIMEOUT,
    SourceReason.UNREACHABLE,
    SourceReason.FORBIDDEN,
    SourceReason.BAD_ANSWER,
    SourceReason.INTERNAL,
)
"""What can be the matter with a peer. The series stand at 0 from the start, so that a first failure is a rise."""


class PeerMetrics(PeerInstrumentation):
    """Counts what the store notes, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        messages = Counter(
            "poolmuster_peer_messages",
            "Messages from and to peers; a snapshot holds all pools, a delta those that changed",
            ["direction", "kind"],
            registry=registry,
        )
        sizes = Counter(
            "poolmuster_peer_bytes", "Bytes of these messages, before TLS", ["direction", "kind"], registry=registry
        )
        ways = [(direction, kind) for direction in (IN, OUT) for kind in (DELTA, SNAPSHOT)]
        self._messages = {way: messages.labels(*way) for way in ways}
        self._bytes = {way: sizes.labels(*way) for way in ways}
        self._reads = Counter(
            "poolmuster_peer_reads",
            "Polls, and streams begun or ended, by outcome",
            ["outcome"],
            registry=registry,
        )
        for outcome in (GOOD, REFUSED, *REASONS):
            self._reads.labels(outcome)
        resolutions = Counter(
            "poolmuster_peer_resolutions", "Resolutions of the peers' names", ["outcome"], registry=registry
        )
        self._resolutions = {True: resolutions.labels(GOOD), False: resolutions.labels("failed")}
        self._lag = Histogram(
            "poolmuster_peer_lag_seconds",
            "From a registration at a peer to its being listed here",
            buckets=LAG_S,
            registry=registry,
        )
        self._skipped = Counter(
            "poolmuster_peer_skipped_entries", "Entries of peers' messages that were not valid", registry=registry
        )
        self._peers = Gauge(
            "poolmuster_peers", "Addresses behind the peers' names that count, by state", ["state"], registry=registry
        )
        for state in SourceState:
            self._peers.labels(state.value)
        self._streams = Gauge("poolmuster_peer_streams", "Open streams to peers", registry=registry)

    def message(self, direction: str, kind: str, size_bytes: int) -> None:
        self._messages[direction, kind].inc()
        self._bytes[direction, kind].inc(size_bytes)

    def read_ended(self, outcome: str) -> None:
        self._reads.labels(outcome).inc()

    def resolved(self, good: bool) -> None:
        self._resolutions[good].inc()

    def renewal_came(self, after_ms: int) -> None:
        self._lag.observe(after_ms / 1000)

    def skipped(self, count: int) -> None:
        self._skipped.inc(count)

    def watch_peers(self, states: Callable[[], Counts[str]]) -> None:
        def count(state: str) -> float:
            return states()[state]

        for state in SourceState:
            self._peers.labels(state.value).set_function(partial(count, state.value))

    def subscribers(self, count: int) -> None:
        self._streams.set(count)
