"""The applications of an instance: every path with its roles and handlers."""

import functools
import random
from collections.abc import Callable
from typing import NamedTuple

from starlette.types import ASGIApp

from poolmuster.api.list_responses import ListCache
from poolmuster.api.metrics import Metrics
from poolmuster.api.pages import page_endpoints
from poolmuster.api.peers import peer_endpoints
from poolmuster.api.pools import PoolHandlers, service_headers
from poolmuster.api.request import ApiLimits
from poolmuster.api.status import StatusHandlers
from poolmuster.api.watch import Watch
from poolmuster.http.application import Application, Endpoint, responding
from poolmuster.http.auth import AccessPolicy
from poolmuster.http.health import Readiness, live
from poolmuster.http.limits import HttpCounters
from poolmuster.model.auth import Role
from poolmuster.service.instance import Instance

KEY_PATH = "/pools/{cluster_id}/{namespace}/{dgd_name}"
NOT_FOUND = "There is nothing at this path. GET /openapi.json describes what there is."
NOT_FOUND_HEALTH = "This address has /health/live, /health/ready and /metrics only."


class Apps(NamedTuple):
    """The whole interface, and health and metrics alone."""

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
    """The HTTP interface of ``instance``. Health and the pages that hold no data are open to everyone."""
    authorizer = rules.authorizer
    lists = ListCache(instance)
    watch = Watch(instance, lists, metrics, limits, authorizer, random_ms)
    pools = PoolHandlers(instance, lists, metrics, authorizer, limits.body_bytes)
    status = StatusHandlers(instance, lists, metrics, counters, watch)
    readiness = Readiness(status.check_ready, authorizer)
    read, register = Role.READ, Role.REGISTER
    main = [
        Endpoint("/pools", GET=(read, pools.list_pools), POST=(register, pools.register)),
        Endpoint("/pools/watch", GET=(read, watch)),
        Endpoint(KEY_PATH, GET=(read, responding(pools.one)), DELETE=(register, responding(pools.deregister))),
        Endpoint("/routers", GET=(read, responding(status.routers))),
        Endpoint("/changes", GET=(read, status.changes)),
        Endpoint("/status", GET=(read, responding(status.status))),
        Endpoint("/metrics", GET=(read, responding(status.metrics))),
        Endpoint("/health/live", GET=(None, responding(live))),
        Endpoint("/health/ready", GET=(None, responding(readiness.detailed))),
        *page_endpoints(),
        *peer_endpoints(instance, authorizer, limits.streams),
    ]
    health = [
        Endpoint("/health/live", GET=(None, responding(live))),
        Endpoint("/health/ready", GET=(None, responding(readiness.minimal))),
        Endpoint("/metrics", GET=(None, responding(status.metrics))),
    ]

    application = functools.partial(
        Application,
        headers=service_headers(instance),
        sources=lambda: instance.catalog.completeness().sources,
        counters=counters,
        auth_log=rules.auth_log,
    )
    return Apps(
        main=application(main, not_found=NOT_FOUND, authorizer=authorizer, loopback_only=rules.loopback_only),
        health=application(health, not_found=NOT_FOUND_HEALTH, loopback_only=rules.health_loopback_only),
    )
