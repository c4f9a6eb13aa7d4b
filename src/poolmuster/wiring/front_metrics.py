"""Metrics of what stands between the network and a program: refusals, files, certificates."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from poolmuster.identity.upkeep import Kept
from poolmuster.model.access import RefusalReason


class FrontCollector(Collector):
    """What is read off the front at each scrape. Labels are closed sets."""

    def __init__(self, refusals: Counter[RefusalReason], kept: Callable[[], Sequence[Kept]]) -> None:
        self._refusals = refusals
        self._kept = kept

    def describe(self) -> Iterator[Metric]:
        """Nothing: with no description the registry does not collect at registration."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The gauges and counters."""
        refusals = CounterMetricFamily("poolmuster_auth_refusals", "Requests refused, by reason", labels=["reason"])
        for reason in RefusalReason:
            refusals.add_metric([reason.value], self._refusals[reason])
        yield refusals
        usable = GaugeMetricFamily(
            "poolmuster_credentials_file_usable", "1 unless a file cannot be used as it is now", labels=["file"]
        )
        for each in self._kept():
            usable.add_metric([each.what], float(each.files.problem is None))
        yield usable
