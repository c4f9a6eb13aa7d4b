"""The relay's own health, status and metrics.

``GET /health/live`` depends on nothing. ``GET /health/ready`` is ``200`` while every pool whose server is up is listed;
a pool whose server is down is off the list on purpose and does not count. ``GET /status`` shows everything. The names
of the metrics are stable and documented in docs/relay.md.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from poolmuster import __version__
from poolmuster.http.application import Application, Endpoint, responding
from poolmuster.http.auth import AccessPolicy
from poolmuster.http.health import Readiness, exposition, live
from poolmuster.model.auth import Role
from poolmuster.model.errors import Unavailable
from poolmuster.relay.status import PoolCounts, RelayPoolStatus, ServerState
from poolmuster.relay.supervisor import AgentSupervisor

_PREFIX = "poolmuster_relay_"
_GAUGES: tuple[tuple[str, str, Callable[[RelayPoolStatus], bool]], ...] = (
    ("server_up", "1 while the model server is up and serves", lambda pool: pool.server.state is ServerState.UP),
    ("pool_listed", "1 while the last lease runs", lambda pool: pool.discovery.listed),
    ("pool_refused", "1 while discovery refuses the pool", lambda pool: pool.discovery.refused),
    ("pool_conflict", "1 while another relay registers the pool in turn", lambda pool: pool.discovery.conflict),
)
_HEARTBEATS = "Heartbeats by outcome: registered, renewed, failed, refused, superseded"
_PROBES = "Probes by outcome: good, frontend_unhealthy, no_models"
_COUNTERS: tuple[tuple[str, str, str, Callable[[PoolCounts], Counter[str]]], ...] = (
    ("heartbeats", _HEARTBEATS, "outcome", lambda counts: counts.heartbeats),
    ("probes", _PROBES, "outcome", lambda counts: counts.probes),
    ("deregistrations", "Deregistrations accepted, by reason", "reason", lambda counts: counts.deregistrations),
)


class RelayCollector(Collector):
    """Metrics read from the agents at each scrape, so that the series of a pool leave with it."""

    def __init__(self, supervisor: AgentSupervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """The gauges and counters."""
        statuses = self._supervisor.statuses
        for name, text, value in _GAUGES:
            gauge = GaugeMetricFamily(_PREFIX + name, text, labels=["pool"])
            for status in statuses:
                gauge.add_metric([status.key], float(value(status)))
            yield gauge
        counts = [(str(agent.settings.key), agent.counts) for agent in self._supervisor.agents]
        for name, text, label, counter_of in _COUNTERS:
            counter = CounterMetricFamily(_PREFIX + name, text, labels=["pool", label])
            for key, each in counts:
                for outcome, count in counter_of(each).items():
                    counter.add_metric([key, outcome], count)
            yield counter
        text = "Times the pool left the list when it should be listed"
        lost = CounterMetricFamily(_PREFIX + "leases_lost", text, labels=["pool"])
        for key, each in counts:
            lost.add_metric([key], each.leases_lost)
        yield lost
        text = "1 unless the pools file cannot be used, and its last good content is"
        yield GaugeMetricFamily(_PREFIX + "pools_file_usable", text, float(self._supervisor.file_problem is None))


class RelayHandlers:
    """The handlers. ``boot_id`` names this run of the relay."""

    def __init__(self, supervisor: AgentSupervisor, boot_id: str, registry: CollectorRegistry) -> None:
        self._supervisor = supervisor
        self._boot_id = boot_id
        self._registry = registry
        registry.register(RelayCollector(supervisor))

    def check_ready(self) -> None:
        """Raise `Unavailable`, with the first reason, unless every pool that should be listed is."""
        if self._supervisor.stopping:
            raise Unavailable("This relay is stopping.")
        faults = [
            f"{status.key}: {fault.rstrip('.')}."
            for status in self._supervisor.statuses
            if (fault := status.fault) is not None
        ]
        if faults:
            more = f" And {len(faults) - 1} more." if len(faults) > 1 else ""
            raise Unavailable(faults[0] + more)

    async def status(self, request: Request) -> Response:
        """``GET /status``: every pool, its server and discovery."""
        document = {
            "program": "relay",
            "version": __version__,
            "instance": self._boot_id,
            "stopping": self._supervisor.stopping,
            "pools_file_problem": self._supervisor.file_problem,
            "pools": [{**msgspec.to_builtins(status), "fault": status.fault} for status in self._supervisor.statuses],
        }
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        """``GET /metrics``, in the format that the scraper prefers."""
        return exposition(self._registry, request)


def relay_apps(
    supervisor: AgentSupervisor, boot_id: str, registry: CollectorRegistry, policy: AccessPolicy
) -> tuple[ASGIApp, ASGIApp]:
    """The ASGI applications of a relay: all of it, and health and metrics alone."""
    handlers = RelayHandlers(supervisor, boot_id, registry)
    readiness = Readiness(handlers.check_ready, policy.authorizer)
    main = [
        Endpoint("/status", GET=(Role.READ, responding(handlers.status))),
        Endpoint("/metrics", GET=(Role.READ, responding(handlers.metrics))),
        Endpoint("/health/live", GET=(None, responding(live))),
        Endpoint("/health/ready", GET=(None, responding(readiness.detailed))),
    ]
    health = [
        Endpoint("/metrics", GET=(None, responding(handlers.metrics))),
        Endpoint("/health/live", GET=(None, responding(live))),
        Endpoint("/health/ready", GET=(None, responding(readiness.minimal))),
    ]

    return (
        Application(main, authorizer=policy.authorizer, loopback_only=policy.loopback_only, auth_log=policy.auth_log),
        Application(health, loopback_only=policy.health_loopback_only, auth_log=policy.auth_log),
    )
