"""Metrics of the service. Their names are stable and documented in docs/operations.md.

Series with the label ``cluster`` are made at each scrape from the current list, so they leave with their pools.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from poolmuster.http.limits import HttpCounters
from poolmuster.service.instance import Instance

LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CLUSTERS_SHOWN = 1000
HANDSHAKES = ("handshakes", "handshakes_failed")
REFUSALS = [name for name in HttpCounters.__struct_fields__ if name not in ("connections", *HANDSHAKES)]
"""The counters that are values of the label ``limit``."""


class Metrics:
    """Counters and histograms, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._publish_lag = Histogram(
            "poolmuster_publish_lag_seconds",
            "From a change of the list to the waking of its last watcher",
            buckets=LAG_BUCKETS,
            registry=registry,
        )
        lists = Counter("poolmuster_lists", "Lists answered", ["outcome"], registry=registry)
        self.lists_sent = lists.labels("sent")
        self.lists_not_modified = lists.labels("not_modified")
        self.watch_resets = Counter(
            "poolmuster_watch_resets", "Watchers too slow for the history, which got a snapshot", registry=registry
        )

    def published(self, lag_ms: int) -> None:
        """Observe the time until all watchers of some changes were woken."""
        self._publish_lag.observe(lag_ms / 1000)


class InstanceCollector(Collector):
    """Gauges that are read from the instance at each scrape."""

    def __init__(self, instance: Instance, counters: HttpCounters, streams: Callable[[], int]) -> None:
        self._instance = instance
        self._counters = counters
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        """The gauges and counters."""
        catalog = self._instance.catalog
        now = catalog.completeness()
        yield GaugeMetricFamily("poolmuster_complete", "1 while the list is known to be complete", float(now.complete))
        fresh = GaugeMetricFamily(
            "poolmuster_source_fresh", "1 while the source is fresh", labels=["kind", "name", "reason"]
        )
        for source in now.sources:
            fresh.add_metric([source.kind, source.name, source.reason or ""], float(source.reason is None))
        yield fresh
        yield self._pools()
        history = catalog.change_log
        gauges = {
            "poolmuster_registrations_bytes": ("Size of the listed pools", catalog.leases.size_bytes),
            "poolmuster_history_changes": ("Changes held for watchers to resume from", len(history)),
            "poolmuster_history_bytes": ("Size of the held changes", history.size_bytes),
            "poolmuster_conflicted_pools": ("Pools with a conflict now", len(catalog.conflicts())),
            "poolmuster_watchers": ("Open watch streams", self._streams()),
            "poolmuster_views": ("Filtered views kept up to date", len(self._instance.views)),
            "poolmuster_connections": ("Open connections", self._counters.connections),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, float(value))
        for name, bound in self._instance.info.limits.items():
            yield GaugeMetricFamily(f"poolmuster_limit_{name}", f"The bound --limit-{name.replace('_', '-')}", bound)
        yield CounterMetricFamily(
            "poolmuster_conflicts", "Conflicts of two relays over one pool that began", catalog.conflicts_begun
        )
        yield self._changes()
        refusals = CounterMetricFamily("poolmuster_http_refusals", "What a limit of HTTP stopped", labels=["limit"])
        for name in REFUSALS:
            refusals.add_metric([name], getattr(self._counters, name))
        yield refusals

    def _changes(self) -> Metric:
        changes = CounterMetricFamily(
            "poolmuster_changes", "Changes of the list by kind and cause", labels=["kind", "cause"]
        )
        for (kind, cause), count in self._instance.catalog.change_log.counts.items():
            changes.add_metric([kind.value, "" if cause is None else cause.value], count)
        return changes

    def _pools(self) -> Metric:
        pools = GaugeMetricFamily("poolmuster_pools", "Listed pools by cluster", labels=["cluster"])
        by_size = sorted(self._instance.catalog.leases.group_counts.items(), key=lambda item: (-item[1], item[0]))
        for cluster, count in by_size[:CLUSTERS_SHOWN]:
            pools.add_metric([cluster], count)
        if rest := sum(count for _, count in by_size[CLUSTERS_SHOWN:]):
            pools.add_metric(["other"], rest)
        return pools
