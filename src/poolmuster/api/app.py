"""The application: which path is which resource."""

import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from poolmuster.api.lists import Lists
from poolmuster.api.meta import Meta
from poolmuster.api.metrics import InstanceCollector, Metrics
from poolmuster.api.pages import page_routes
from poolmuster.api.peers import Peers
from poolmuster.api.pools import Pools
from poolmuster.api.watch import Watch
from poolmuster.httpd.gate import EntryRules, Gate
from poolmuster.httpd.limits import HttpCounters
from poolmuster.httpd.paths import Paths
from poolmuster.httpd.probes import Readiness, live
from poolmuster.httpd.problems import Headers
from poolmuster.httpd.resource import Resource
from poolmuster.httpd.shell import Shell
from poolmuster.model.access import Role
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
    rules: EntryRules,
    *,
    random_ms: Callable[[int, int], int] = random.randint,
) -> Apps:
    """The HTTP interface of ``instance``.

    Pages that hold no data, and whether the instance lives and is ready, are open to everybody in any case.
    """
    gate = rules.gate
    lists = Lists(instance)
    watch = Watch(instance, lists, metrics, limits, gate, random_ms)
    pools = Pools(instance, lists, metrics, gate, limits.body_bytes)
    meta = Meta(instance, lists, metrics, counters=lambda: counters, streams=lambda: watch.streams)
    metrics.registry.register(InstanceCollector(instance, counters, lambda: watch.streams))
    readiness = Readiness(meta.check_ready, gate)
    guard, read, register = gate.guard, Role.READ, Role.REGISTER
    main = [
        Route(
            "/pools", guard(Resource(asgi={"POST": pools.register, "GET": pools.list_pools}), GET=read, POST=register)
        ),
        Route("/pools/watch", guard(Resource(asgi={"GET": watch}), GET=read)),
        Route(KEY_PATH, guard(Resource(GET=pools.one, DELETE=pools.leave), GET=read, DELETE=register)),
        Route("/routers", guard(Resource(GET=meta.routers), GET=read)),
        Route("/changes", guard(Resource(asgi={"GET": meta.changes}), GET=read)),
        Route("/status", guard(Resource(GET=meta.status), GET=read)),
        Route("/metrics", guard(Resource(GET=meta.metrics), GET=read)),
        Route("/health/live", Resource(GET=live)),
        Route("/health/ready", Resource(GET=readiness.reasoned)),
        *page_routes(),
        *_peer_routes(instance, gate, limits),
    ]
    health = [
        Route("/health/live", Resource(GET=live)),
        Route("/health/ready", Resource(GET=readiness.bare)),
        Route("/metrics", Resource(GET=meta.metrics)),
    ]

    def shell(paths: Paths, *, loopback_only: bool) -> ASGIApp:
        return Shell(
            paths,
            headers=service_headers(instance),
            sources=lambda: instance.projection.completeness().sources,
            loopback_only=loopback_only,
            counters=counters,
            refusals=rules.refusals,
        )

    return Apps(
        main=shell(Paths(main, not_found=_not_found, guard=guard), loopback_only=rules.loopback_only),
        health=shell(Paths(health, not_found=_only_health), loopback_only=rules.health_loopback_only),
    )


def _peer_routes(instance: Instance, gate: Gate, limits: ApiLimits) -> tuple[Route, ...]:
    """What instances tell each other, where there are others: no part of the public interface."""
    if instance.sharing is None:
        return ()
    peers = Peers(instance, instance.sharing, gate, limits.streams)
    return tuple(
        Route(f"/peer/v1/{name}", gate.guard(Resource(asgi={"GET": app}), GET=Role.PEER))
        for name, app in (("list", peers.whole), ("feed", peers.feed), ("stream", peers.stream))
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


async def _only_health(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("This address has /health/live, /health/ready and /metrics only.")
