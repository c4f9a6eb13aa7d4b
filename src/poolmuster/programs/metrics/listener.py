"""Metrics of what stands between the network and a program: refusals, files, certificates."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from poolmuster.auth.service_accounts import ServiceAccounts
from poolmuster.http.limits import HttpCounters
from poolmuster.http.tls import TlsFiles
from poolmuster.model.auth import AuthFailure
from poolmuster.programs.auth_setup import AuthSetup


class ListenerCollector(Collector):
    """What is read off the front at each scrape. Labels are closed sets."""

    def __init__(self, refusals: Counter[AuthFailure], counters: HttpCounters, credentials: AuthSetup) -> None:
        self._refusals = refusals
        self._counters = counters
        self._credentials = credentials

    def collect(self) -> Iterator[Metric]:
        """The gauges and counters."""
        refusals = CounterMetricFamily("poolmuster_auth_refusals", "Requests refused, by reason", labels=["reason"])
        for reason in AuthFailure:
            refusals.add_metric([reason.value], self._refusals[reason])
        yield refusals
        usable = GaugeMetricFamily(
            "poolmuster_credentials_file_usable", "1 unless a file cannot be used as it is now", labels=["file"]
        )
        for name, files in self._credentials.files.items():
            usable.add_metric([name], float(files.problem is None))
        yield usable
        if self._credentials.tls is not None:
            yield from self._of_tls(self._credentials.tls)
        if self._credentials.accounts is not None:
            yield from _of_accounts(self._credentials.accounts)

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


def _of_accounts(accounts: ServiceAccounts) -> Iterator[Metric]:
    keys = GaugeMetricFamily("poolmuster_oidc_keys", "Signing keys in use, by issuer", labels=["issuer"])
    fresh = GaugeMetricFamily(
        "poolmuster_oidc_keys_fresh",
        "1 unless the keys of an issuer could not be read the last time",
        labels=["issuer"],
    )
    for issuer, key_set in accounts.issuers.items():
        keys.add_metric([issuer], len(key_set))
        fresh.add_metric([issuer], float(key_set.problem is None))
    yield from (keys, fresh)
    verifications = CounterMetricFamily(
        "poolmuster_oidc_verifications", "Signatures of service accounts' tokens, by outcome", labels=["outcome"]
    )
    verifications.add_metric(["good"], accounts.verifications - accounts.wrong_signatures)
    verifications.add_metric(["wrong"], accounts.wrong_signatures)
    verifications.add_metric(["put_off"], accounts.throttled)
    yield verifications
