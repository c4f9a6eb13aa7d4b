"""Metrics of what stands between the network and a program: refusals, files, certificates."""

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from poolmuster.httpd.limits import HttpCounters
from poolmuster.httpd.tls import TlsFiles
from poolmuster.identity.upkeep import Kept
from poolmuster.model.access import RefusalReason


class FrontCollector(Collector):
    """What is read off the front at each scrape. Labels are closed sets."""

    def __init__(
        self,
        refusals: Counter[RefusalReason],
        kept: Sequence[Kept],
        tls: TlsFiles | None,
        counters: HttpCounters,
    ) -> None:
        self._refusals = refusals
        self._kept = kept
        self._tls = tls
        self._counters = counters

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
        for each in self._kept:
            usable.add_metric([each.what], float(each.files.problem is None))
        yield usable
        if self._tls is not None:
            yield from self._of_tls(self._tls)

    def _of_tls(self, tls: TlsFiles) -> Iterator[Metric]:
        counters = self._counters
        yield GaugeMetricFamily(
            "poolmuster_tls_certificate_not_after_seconds",
            "When the certificate that is served ends, in seconds since 1970",
            tls.current().not_after_ms / 1000,
        )
        yield GaugeMetricFamily(
            "poolmuster_tls_handshakes", "Connections on which TLS has not begun yet", float(counters.handshakes)
        )
        failed = CounterMetricFamily(
            "poolmuster_tls_handshakes_failed", "Handshakes that came to nothing, by reason", labels=["reason"]
        )
        for reason, count in counters.handshakes_failed.items():
            failed.add_metric([reason.value], count)
        yield failed
