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
from poolmuster.httpd.probes import exposition, fine, live
from poolmuster.httpd.resource import Resource
from poolmuster.httpd.shell import Shell
from poolmuster.model.errors import NotFound, Unavailable
from poolmuster.relay.crew import Crew
from poolmuster.relay.metrics import CrewCollector


class RelayPages:
    """The handlers. ``boot_id`` names this run of the relay."""

    def __init__(self, crew: Crew, boot_id: str) -> None:
        self._crew = crew
        self._boot_id = boot_id
        self._registry = CollectorRegistry()
        self._registry.register(CrewCollector(crew))

    async def ready(self, request: Request) -> Response:
        """``GET /health/ready``: every pool that should be listed is."""
        if self._crew.stopping:
            raise Unavailable("This relay is stopping.")
        faults = [f"{status.key}: {fault}." for status in self._crew.statuses if (fault := status.fault) is not None]
        if faults:
            more = f" And {len(faults) - 1} more." if len(faults) > 1 else ""
            raise Unavailable(faults[0] + more)
        return fine()

    async def status(self, request: Request) -> Response:
        """``GET /status``: every pool, as its server and discovery are seen from here."""
        document = {
            "program": "relay",
            "version": __version__,
            "instance": self._boot_id,
            "stopping": self._crew.stopping,
            "pools_file_problem": self._crew.file_problem,
            "pools": [{**msgspec.to_builtins(status), "fault": status.fault} for status in self._crew.statuses],
        }
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        """``GET /metrics``, in the format that the scraper prefers."""
        return exposition(self._registry, request)


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound(f"There is nothing at {scope['path']}.")


def relay_app(crew: Crew, boot_id: str, *, loopback_only: bool) -> ASGIApp:
    """The application that a relay serves."""
    pages = RelayPages(crew, boot_id)
    routes = [
        Route("/health/live", Resource(GET=live)),
        Route("/health/ready", Resource(GET=pages.ready)),
        Route("/status", Resource(GET=pages.status)),
        Route("/metrics", Resource(GET=pages.metrics)),
    ]
    router = Router(routes, redirect_slashes=False, default=_no_such_path)
    return Shell(router, loopback_only=loopback_only)
