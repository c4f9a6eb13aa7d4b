"""The application: which path is which resource."""

import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from starlette.types import ASGIApp

from poolmuster.api.list_responses import ListCache
from poolmuster.api.metrics import InstanceCollector, Metrics
from poolmuster.api.pages import page_endpoints
from poolmuster.api.peers import PeerHandlers
from poolmuster.api.pools import PoolHandlers
from poolmuster.api.status import StatusHandlers
from poolmuster.api.watch import Watch
from poolmuster.http.auth import AccessPolicy, Authorizer
from poolmuster.http.errors import ErrorMiddleware
from poolmuster.http.health import Readiness, live
from poolmuster.http.limits import HttpCounters
from poolmuster.http.problems import Headers
from poolmuster.http.router import Endpoint, PathRouter, responding
from poolmuster.model.auth import Role
from poolmuster.service.instance import Instance

KEY_PATH = "/pools/{cluster_id}/{namespace}/{dgd_name}"
NOT_FOUND = "There is nothing at this path. GET /openapi.json describes what there is."
NOT_FOUND_HEALTH = "This address has /health/live, /health/ready and /metrics only."


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the interface: bytes of a registration's body, streams at once, and those of one credential."""

    body_bytes: int
    streams: int
    streams_per_credential: int


class Apps(NamedTuple):
    """The applications of an instance: all of it, and what those who watch over it are shown by themselves."""

    main: ASGIApp
    health: ASGIApp


def build_apps(
    instance: Instance,
    metrics: Metrics,
    limits: ApiLimits,
    counters: HttpCounters,
    rules: AccessPolicy,
    *,
    random_ms: Callable[[int, int], int] = random.randint,
) -> Apps:
    """The HTTP interface of ``instance``.

    Pages that hold no data, and whether the instance lives and is ready, are open to everybody in any case.
    """
    authorizer = rules.authorizer
    lists = ListCache(instance)
    watch = Watch(instance, lists, metrics, limits, authorizer, random_ms)
    pools = PoolHandlers(instance, lists, metrics, authorizer, limits.body_bytes)
    meta = StatusHandlers(instance, lists, metrics, counters=lambda: counters, streams=lambda: watch.streams)
    metrics.registry.register(InstanceCollector(instance, counters, lambda: watch.streams))
    readiness = Readiness(meta.check_ready, authorizer)
    read, register = Role.READ, Role.REGISTER
    main = [
        Endpoint("/pools", GET=(read, pools.list_pools), POST=(register, pools.register)),
        Endpoint("/pools/watch", GET=(read, watch)),
        Endpoint(KEY_PATH, GET=(read, responding(pools.one)), DELETE=(register, responding(pools.leave))),
        Endpoint("/routers", GET=(read, responding(meta.routers))),
        Endpoint("/changes", GET=(read, meta.changes)),
        Endpoint("/status", GET=(read, responding(meta.status))),
        Endpoint("/metrics", GET=(read, responding(meta.metrics))),
        Endpoint("/health/live", GET=(None, responding(live))),
        Endpoint("/health/ready", GET=(None, responding(readiness.detailed))),
        *page_endpoints(),
        *_peer_endpoints(instance, authorizer, limits),
    ]
    health = [
        Endpoint("/health/live", GET=(None, responding(live))),
        Endpoint("/health/ready", GET=(None, responding(readiness.minimal))),
        Endpoint("/metrics", GET=(None, responding(meta.metrics))),
    ]

    def shell(paths: PathRouter, *, loopback_only: bool) -> ASGIApp:
        return ErrorMiddleware(
            paths,
            headers=service_headers(instance),
            sources=lambda: instance.catalog.completeness().sources,
            loopback_only=loopback_only,
            counters=counters,
            refusals=rules.auth_log,
        )

    return Apps(
        main=shell(PathRouter(main, not_found=NOT_FOUND, authorizer=authorizer), loopback_only=rules.loopback_only),
        health=shell(PathRouter(health, not_found=NOT_FOUND_HEALTH), loopback_only=rules.health_loopback_only),
    )


def _peer_endpoints(instance: Instance, authorizer: Authorizer, limits: ApiLimits) -> list[Endpoint]:
    """The private endpoints that peers read, where there is a feed for them."""
    if instance.replication_feed is None:
        return []
    peers = PeerHandlers(instance, instance.replication_feed, authorizer, limits.streams)
    return [
        Endpoint(f"/peer/v1/{name}", GET=(Role.PEER, app))
        for name, app in (("list", peers.snapshot), ("feed", peers.delta), ("stream", peers.stream))
    ]


def service_headers(instance: Instance) -> Callable[[], Headers]:
    """What every answer bears. A list brings its own revision and completeness, as of its encoding."""
    catalog = instance.catalog
    boot_id = instance.info.boot_id.encode()

    def headers() -> Headers:
        now = catalog.completeness()
        return [
            (b"poolmuster-revision", b"%b.%d" % (boot_id, catalog.change_log.number)),
            (b"poolmuster-complete", b"true" if now.complete else b"false"),
            (b"poolmuster-instance", boot_id),
        ]

    return headers
