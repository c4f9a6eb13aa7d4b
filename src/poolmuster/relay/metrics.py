"""Metrics of a relay. Their names are stable and documented in docs/relay.md.

All are read off the agents at each scrape, so the series of a pool leave with it.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from poolmuster.relay.status import ServerState
from poolmuster.relay.supervisor import AgentSupervisor


class RelayCollector(Collector):
    """What a scrape finds."""

    def __init__(self, supervisor: AgentSupervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """The gauges and counters."""
        yield from self._gauges()
        yield from self._counters()
        yield GaugeMetricFamily(
            "poolmuster_relay_pools_file_usable",
            "1 unless the pools file cannot be used, and what it last held is",
            float(self._supervisor.file_problem is None),
        )

    def _gauges(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "poolmuster_relay_server_up", "1 while the model server is up and serves", labels=["pool"]
        )
        listed = GaugeMetricFamily("poolmuster_relay_pool_listed", "1 while the last lease runs", labels=["pool"])
        refused = GaugeMetricFamily(
            "poolmuster_relay_pool_refused", "1 while discovery refuses the pool", labels=["pool"]
        )
        conflict = GaugeMetricFamily(
            "poolmuster_relay_pool_conflict", "1 while another relay registers the pool in turn", labels=["pool"]
        )
        for status in self._supervisor.statuses:
            up.add_metric([status.key], float(status.server.state is ServerState.UP))
            listed.add_metric([status.key], float(status.discovery.listed))
            refused.add_metric([status.key], float(status.discovery.refused))
            conflict.add_metric([status.key], float(status.discovery.conflict))
        yield from (up, listed, refused, conflict)

    def _counters(self) -> Iterator[Metric]:
        beats = CounterMetricFamily(
            "poolmuster_relay_heartbeats",
            "Heartbeats by outcome: registered, renewed, failed, refused, superseded",
            labels=["pool", "outcome"],
        )
        probes = CounterMetricFamily(
            "poolmuster_relay_probes",
            "Probes by outcome: good, frontend_unhealthy, no_models",
            labels=["pool", "outcome"],
        )
        left = CounterMetricFamily(
            "poolmuster_relay_deregistrations", "Deregistrations taken, by reason", labels=["pool", "reason"]
        )
        lost = CounterMetricFamily(
            "poolmuster_relay_leases_lost",
            "Times the pool had left the list while it should be listed",
            labels=["pool"],
        )
        for agent in self._supervisor.agents:
            key = str(agent.settings.key)
            for family, counter in (
                (beats, agent.counts.heartbeats),
                (probes, agent.counts.probes),
                (left, agent.counts.deregistrations),
            ):
                for name, count in counter.items():
                    family.add_metric([key, name], count)
            lost.add_metric([key], agent.counts.leases_lost)
        yield from (beats, probes, left, lost)
