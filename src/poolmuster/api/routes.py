"""The application: which path is which resource."""

import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from poolmuster.api.list_responses import ListCache
from poolmuster.api.metrics import InstanceCollector, Metrics
from poolmuster.api.pages import page_routes
from poolmuster.api.peers import PeerHandlers
from poolmuster.api.pools import PoolHandlers
from poolmuster.api.status import StatusHandlers
from poolmuster.api.watch import Watch
from poolmuster.http.auth import AccessPolicy, Authorizer
from poolmuster.http.endpoint import Endpoint
from poolmuster.http.errors import ErrorMiddleware
from poolmuster.http.health import Readiness, live
from poolmuster.http.limits import HttpCounters
from poolmuster.http.problems import Headers
from poolmuster.http.router import PathRouter
from poolmuster.model.auth import Role
from poolmuster.model.errors import NotFound
from poolmuster.service.instance import Instance

KEY_PATH = "/pools/{cluster_id:part}/{namespace:part}/{dgd_name:part}"


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
    guard, read, register = authorizer.guard, Role.READ, Role.REGISTER
    main = [
        Route(
            "/pools", guard(Endpoint(asgi={"POST": pools.register, "GET": pools.list_pools}), GET=read, POST=register)
        ),
        Route("/pools/watch", guard(Endpoint(asgi={"GET": watch}), GET=read)),
        Route(KEY_PATH, guard(Endpoint(GET=pools.one, DELETE=pools.leave), GET=read, DELETE=register)),
        Route("/routers", guard(Endpoint(GET=meta.routers), GET=read)),
        Route("/changes", guard(Endpoint(asgi={"GET": meta.changes}), GET=read)),
        Route("/status", guard(Endpoint(GET=meta.status), GET=read)),
        Route("/metrics", guard(Endpoint(GET=meta.metrics), GET=read)),
        Route("/health/live", Endpoint(GET=live)),
        Route("/health/ready", Endpoint(GET=readiness.detailed)),
        *page_routes(),
        *_peer_routes(instance, authorizer, limits),
    ]
    health = [
        Route("/health/live", Endpoint(GET=live)),
        Route("/health/ready", Endpoint(GET=readiness.minimal)),
        Route("/metrics", Endpoint(GET=meta.metrics)),
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
        main=shell(PathRouter(main, not_found=_not_found, guard=guard), loopback_only=rules.loopback_only),
        health=shell(PathRouter(health, not_found=_only_health), loopback_only=rules.health_loopback_only),
    )


def _peer_routes(instance: Instance, authorizer: Authorizer, limits: ApiLimits) -> tuple[Route, ...]:
    """What instances tell each other, where there are others: no part of the public interface."""
    if instance.replication_feed is None:
        return ()
    peers = PeerHandlers(instance, instance.replication_feed, authorizer, limits.streams)
    return tuple(
        Route(f"/peer/v1/{name}", authorizer.guard(Endpoint(asgi={"GET": app}), GET=Role.PEER))
        for name, app in (("list", peers.snapshot), ("feed", peers.delta), ("stream", peers.stream))
    )


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


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("There is nothing at this path. GET /openapi.json describes what there is.")


async def _only_health(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("This address has /health/live, /health/ready and /metrics only.")
