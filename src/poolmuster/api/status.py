"""The paths about the service itself: ``/routers``, ``/changes``, ``/status``, ``/metrics``, readiness."""

import re

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from poolmuster.api.encoders import encode_changes, json_response
from poolmuster.api.list_responses import ListCache
from poolmuster.api.metrics import InstanceCollector, Metrics
from poolmuster.api.request import parameters, single
from poolmuster.api.schemas import Changes, HistoryStatus, InstanceStatus, PoolConflict, Routers, Status
from poolmuster.api.watch import Watch
from poolmuster.http.health import exposition
from poolmuster.http.limits import HttpCounters
from poolmuster.model.errors import FieldError, InvalidInput, Unavailable
from poolmuster.model.selector import FILTERS, parse_selector
from poolmuster.service.instance import Instance

DEFAULT_SINCE_S = 300.0
CONFLICTS_SHOWN = 1000

_SECONDS = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")


class StatusHandlers:
    """Handlers of the paths about the service."""

    def __init__(
        self, instance: Instance, lists: ListCache, metrics: Metrics, counters: HttpCounters, watch: Watch
    ) -> None:
        self._instance = instance
        self._catalog = instance.catalog
        self._lists = lists
        self._registry = metrics.registry
        self._counters = counters
        self._watch = watch
        metrics.registry.register(InstanceCollector(instance, counters, lambda: watch.streams))

    async def routers(self, request: Request) -> Response:
        """``GET /routers``."""
        parameters(request.scope)
        return json_response(Routers(routers=self._catalog.routers))

    async def changes(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET /changes``. Plain ASGI, as the response is sent in pieces."""
        found = parameters(scope, *FILTERS, "since")
        since_s = _since(single(found, "since"))
        selector = parse_selector((name, value) for name, value in found if name != "since")
        clock, catalog = self._instance.clock, self._catalog
        now_ms = clock.monotonic_ms()
        to_wall_ms = clock.wall_ms() - now_ms
        start_ms = now_ms - round(since_s * 1000)
        known_ms = catalog.change_log.known_since_ms
        response = Changes(
            changes=[],
            since_at_ms=start_ms + to_wall_ms,
            known_since_at_ms=known_ms + to_wall_ms,
            reaches_back=known_ms <= start_ms,
            revision=catalog.revision,
        )
        pieces = encode_changes(response, catalog.change_log.newer_than(start_ms), selector, catalog.boot_id)
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] != "HEAD":
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def status(self, request: Request) -> Response:
        """``GET /status``."""
        parameters(request.scope)
        catalog, info, clock = self._catalog, self._instance.info, self._instance.clock
        now = catalog.completeness()
        conflicts = list(catalog.conflicts().items())
        return json_response(
            Status(
                instance=InstanceStatus(
                    id=info.boot_id,
                    version=info.version,
                    started_at_ms=info.started_at_ms,
                    uptime_ms=clock.monotonic_ms() - info.started_ms,
                    stopping=self._instance.stopping,
                ),
                pool_discovery=info.pool_discovery,
                registration_storage=info.registration_storage,
                lease_ms=info.policy.duration_ms,
                heartbeat_interval_ms=info.policy.heartbeat_ms,
                pools=len(catalog.pools),
                registrations_bytes=catalog.leases.size_bytes,
                clusters=catalog.leases.group_counts,
                complete=now.complete,
                revision=catalog.revision,
                sources=now.sources,
                conflicts=[PoolConflict(key=key, **asdict(each)) for key, each in conflicts[:CONFLICTS_SHOWN]],
                conflicts_count=len(conflicts),
                watchers=self._watch.streams,
                connections=self._counters.connections,
                history=HistoryStatus(changes=len(catalog.change_log), bytes=catalog.change_log.size_bytes),
                limits=info.limits,
            )
        )

    def check_ready(self) -> None:
        """Raises `Unavailable`, with the reason, where this instance should get no requests."""
        if self._instance.stopping:
            raise Unavailable("This instance is stopping.")
        self._lists.require_readable()

    async def metrics(self, request: Request) -> Response:
        """``GET /metrics``, in the format that the scraper prefers."""
        return exposition(self._registry, request)


def _since(text: str | None) -> float:
    if text is None:
        return DEFAULT_SINCE_S
    seconds = float(text) if _SECONDS.fullmatch(text) else -1.0
    if not 0 <= seconds <= 10**9:
        raise InvalidInput("The time span is not valid.", (FieldError("since", "is a number of seconds, 0 or more"),))
    return seconds
