"""The relay's own health, status and metrics.

``GET /health/live`` depends on nothing. ``GET /health/ready`` is ``200`` while every pool whose server is up is listed;
a pool whose server is down is off the list on purpose and does not count. ``GET /status`` says everything.
"""

import msgspec
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from poolmuster import __version__
from poolmuster.http.auth import AccessPolicy
from poolmuster.http.endpoint import Endpoint
from poolmuster.http.errors import ErrorMiddleware
from poolmuster.http.health import Readiness, exposition, live
from poolmuster.model.auth import Role
from poolmuster.model.errors import NotFound, Unavailable
from poolmuster.relay.metrics import RelayCollector
from poolmuster.relay.supervisor import AgentSupervisor


class RelayPages:
    """The handlers. ``boot_id`` names this run of the relay."""

    def __init__(self, supervisor: AgentSupervisor, boot_id: str, registry: CollectorRegistry) -> None:
        self._supervisor = supervisor
        self._boot_id = boot_id
        self._registry = registry
        registry.register(RelayCollector(supervisor))

    def check_ready(self) -> None:
        """Raise `Unavailable` unless every pool that should be listed is; it tells which is not."""
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
        """``GET /status``: every pool, as its server and discovery are seen from here."""
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


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound(f"There is nothing at {scope['path']}.")


def relay_apps(
    supervisor: AgentSupervisor,
    boot_id: str,
    registry: CollectorRegistry,
    rules: AccessPolicy,
) -> tuple[ASGIApp, ASGIApp]:
    """What a relay serves: all of it, and health and metrics by themselves."""
    authorizer = rules.authorizer
    pages = RelayPages(supervisor, boot_id, registry)
    readiness = Readiness(pages.check_ready, authorizer)
    main = [
        Route("/status", authorizer.guard(Endpoint(GET=pages.status), GET=Role.READ)),
        Route("/metrics", authorizer.guard(Endpoint(GET=pages.metrics), GET=Role.READ)),
        Route("/health/live", Endpoint(GET=live)),
        Route("/health/ready", Endpoint(GET=readiness.detailed)),
    ]
    health = [
        Route("/metrics", Endpoint(GET=pages.metrics)),
        Route("/health/live", Endpoint(GET=live)),
        Route("/health/ready", Endpoint(GET=readiness.minimal)),
    ]

    def shell(routes: list[Route], not_found: ASGIApp, *, loopback_only: bool) -> ASGIApp:
        router = Router(routes, redirect_slashes=False, default=not_found)
        return ErrorMiddleware(router, loopback_only=loopback_only, refusals=rules.auth_log)

    return (
        shell(main, authorizer.guard(_no_such_path), loopback_only=rules.loopback_only),
        shell(health, _no_such_path, loopback_only=rules.health_loopback_only),
    )
