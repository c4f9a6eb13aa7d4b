"""The application: which path is which resource."""

import random
from collections.abc import Callable

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from poolmuster.api.lists import Lists
from poolmuster.api.meta import Meta
from poolmuster.api.metrics import InstanceCollector, Metrics
from poolmuster.api.pages import page_routes
from poolmuster.api.pools import Pools
from poolmuster.api.watch import Watch
from poolmuster.httpd.limits import HttpCounters
from poolmuster.httpd.paths import Paths
from poolmuster.httpd.probes import live
from poolmuster.httpd.problems import Headers
from poolmuster.httpd.resource import Resource
from poolmuster.httpd.shell import Shell
from poolmuster.model.errors import NotFound
from poolmuster.service.instance import Instance

KEY_PATH = "/pools/{cluster_id:part}/{namespace:part}/{dgd_name:part}"


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the interface: bytes of a registration's body, streams at once."""

    body_bytes: int
    streams: int


def build_app(
    instance: Instance,
    metrics: Metrics,
    limits: ApiLimits,
    counters: HttpCounters,
    *,
    loopback_only: bool,
    random_ms: Callable[[int, int], int] = random.randint,
) -> ASGIApp:
    """The HTTP interface of ``instance`` as an ASGI application."""
    lists = Lists(instance)
    watch = Watch(instance, lists, metrics, limits.streams, random_ms)
    pools = Pools(instance, lists, metrics, limits.body_bytes)
    meta = Meta(instance, lists, metrics, counters=lambda: counters, streams=lambda: watch.streams)
    metrics.registry.register(InstanceCollector(instance, counters, lambda: watch.streams))
    routes = [
        Route("/pools", Resource(asgi={"POST": pools.register, "GET": pools.list_pools})),
        Route("/pools/watch", Resource(asgi={"GET": watch})),
        Route(KEY_PATH, Resource(GET=pools.one, DELETE=pools.leave)),
        Route("/routers", Resource(GET=meta.routers)),
        Route("/changes", Resource(asgi={"GET": meta.changes})),
        Route("/status", Resource(GET=meta.status)),
        Route("/health/live", Resource(GET=live)),
        Route("/health/ready", Resource(GET=meta.ready)),
        Route("/metrics", Resource(GET=meta.metrics)),
        *page_routes(),
    ]
    return Shell(
        Paths(routes, not_found=_not_found),
        headers=service_headers(instance),
        sources=lambda: instance.projection.completeness().sources,
        loopback_only=loopback_only,
        counters=counters,
    )


def service_headers(instance: Instance) -> Callable[[], Headers]:
    """What every answer bears. A list brings its own revision and completeness, as of its encoding."""
    projection = instance.projection
    boot_id = instance.facts.boot_id.encode()

    def headers() -> Headers:
        now = projection.completeness()
        return [
            (b"poolmuster-revision", b"%b.%d" % (boot_id, projection.history.number)),
            (b"poolmuster-complete", b"true" if now.complete else b"false"),
            (b"poolmuster-instance", boot_id),
        ]

    return headers


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("There is nothing at this path. GET /openapi.json describes what there is.")
