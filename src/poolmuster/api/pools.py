"""``/pools`` and ``/pools/{cluster_id}/{namespace}/{dgd_name}``: register, deregister, list, one pool."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

import msgspec
import structlog
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from poolmuster.api.encoders import change_entries, json_response, pool_of
from poolmuster.api.list_responses import GZIP_FROM_BYTES, ListCache, ListResponse
from poolmuster.api.metrics import LAG_BUCKETS, Metrics
from poolmuster.api.request import ListQuery, accepts_gzip, etag_matches, list_query, parameters, single
from poolmuster.api.schemas import OnePool
from poolmuster.http.application import read_json_body
from poolmuster.http.auth import Authorizer
from poolmuster.http.auth_log import client_of
from poolmuster.http.problems import Headers
from poolmuster.model.auth import Role
from poolmuster.model.change import DETAIL_LIMIT, Deregistration, DeregistrationReason
from poolmuster.model.errors import FieldError, InvalidInput, NotFound
from poolmuster.model.key import PoolKey, check_key
from poolmuster.model.registration import RELAY_ID_LIMIT
from poolmuster.service.instance import Instance

LAST_CHANGES = 10
LIST_HEADERS = [(b"vary", b"accept-encoding"), (b"cache-control", b"no-cache")]

log = structlog.get_logger(__name__)


class RegistrationCounter(Collector):
    """Registrations by outcome, and the time until each was listed. ``bounds_s`` are the histogram's.

    It counts by itself: prometheus-client's counter and histogram look labels up and take a lock for each number, 2 us
    for a heartbeat, which is a tenth of its cost apart from the network. One event loop needs neither.
    """

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._lag_sum_s = 0.0
        self._created = 0
        self._renewed = 0

    def add(self, created: bool, lag_s: float) -> None:
        """Count a registration."""
        if created:
            self._created += 1
        else:
            self._renewed += 1
        self._counts[bisect_left(self._bounds_s, lag_s)] += 1
        self._lag_sum_s += lag_s

    def collect(self) -> Iterator[Metric]:
        """Both, for a scrape."""
        outcomes = CounterMetricFamily(
            "poolmuster_registrations", "Registrations taken, by whether the pool was listed before", labels=["outcome"]
        )
        outcomes.add_metric(["created"], self._created)
        outcomes.add_metric(["renewed"], self._renewed)
        yield outcomes
        names = [*map(str, self._bounds_s), "+Inf"]
        yield HistogramMetricFamily(
            "poolmuster_listing_lag_seconds",
            "From a registration's arrival to its standing in the list",
            buckets=list(zip(names, accumulate(self._counts), strict=True)),
            sum_value=self._lag_sum_s,
        )


class PoolHandlers:
    """Handlers of the paths under ``/pools``, except the watch."""

    def __init__(
        self, instance: Instance, lists: ListCache, metrics: Metrics, authorizer: Authorizer, body_limit_bytes: int
    ) -> None:
        self._instance = instance
        self._lists = lists
        self._metrics = metrics
        self._authorizer = authorizer
        self._body_limit_bytes = body_limit_bytes
        self._encoder = msgspec.json.Encoder()
        self._registrations = RegistrationCounter(LAG_BUCKETS)
        metrics.registry.register(self._registrations)

    async def register(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``POST /pools``. Plain ASGI, as most requests are heartbeats."""
        if scope["query_string"]:
            parameters(scope)
        body = await read_json_body(scope, receive, self._body_limit_bytes)
        # The measured time leaves out how long the relay takes to send the body and to read the response.
        started_s = time.perf_counter()
        # Checked again: credentials may have been revoked while the body came in.
        principal = self._authorizer.reauthorize(scope["auth"], Role.REGISTER).principal
        result = await self._instance.registrar.register_body(body, principal)
        self._registrations.add(result.created, time.perf_counter() - started_s)
        if result.created:
            # Logged before the response, which the client may not be there to read.
            log.info("A pool was registered", pool=str(result.key), principal=principal.name, client=client_of(scope))
        content = self._encoder.encode(result.answer)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 201 if result.created else 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def list_pools(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET /pools``."""
        query = list_query(scope)
        response = await self._lists.answer(query)
        headers = [*LIST_HEADERS, *_state_headers(response.revision, complete=response.complete)]
        if response.etag:
            headers.append((b"etag", response.etag))
            if etag_matches(scope, response.etag):
                self._metrics.lists_not_modified.inc()
                await send({"type": "http.response.start", "status": 304, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
        self._metrics.lists_sent.inc()
        headers.append((b"content-type", b"application/json"))
        await self._send_list(scope, send, query, response, headers)

    async def _send_list(
        self, scope: Scope, send: Send, query: ListQuery, response: ListResponse, headers: Headers
    ) -> None:
        gzipped = None
        if not query.lease:
            size_bytes = response.json.size_bytes
            if size_bytes >= GZIP_FROM_BYTES and accepts_gzip(scope):
                gzipped = await self._lists.gzipped(response)
            if gzipped is not None:
                headers.append((b"content-encoding", b"gzip"))
                size_bytes = len(gzipped)
            headers.append((b"content-length", b"%d" % size_bytes))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if gzipped is None and scope["method"] != "HEAD":
            async for piece in response.json.pieces(self._lists.pool_encoder(query)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": gzipped or b""})

    async def deregister(self, request: Request) -> Response:
        """``DELETE /pools/{key}``."""
        key = _key_of(request)
        found = parameters(request.scope, "relay_id", "reason", "detail")
        relay_id, reason, detail = [single(found, name) for name in ("relay_id", "reason", "detail")]
        if reason is not None and reason not in set(DeregistrationReason):
            allowed = ", ".join(DeregistrationReason)
            raise InvalidInput("The reason is not known.", (FieldError("reason", f"is one of {allowed}"),))
        if relay_id is not None and not 0 < len(relay_id) <= RELAY_ID_LIMIT:
            rule = FieldError("relay_id", f"has 1 to {RELAY_ID_LIMIT} characters")
            raise InvalidInput("The relay id is empty or too long.", (rule,))
        principal = request.scope["auth"].principal
        deregistration = Deregistration(
            key=key,
            relay_id=relay_id,
            reason=DeregistrationReason(reason) if reason is not None else None,
            detail=detail[:DETAIL_LIMIT] if detail is not None else None,
        )
        was_listed = self._instance.catalog.is_live(key)
        await self._instance.registrar.deregister(deregistration, principal)
        if was_listed:
            # With a relay id it takes effect only while that relay is the latest to have registered.
            log.info(
                "A deregistration was taken",
                pool=str(key),
                principal=principal.name,
                client=client_of(request.scope),
                relay_id=relay_id,
                reason=reason,
            )
        return Response(status_code=204)

    async def one(self, request: Request) -> Response:
        """``GET /pools/{key}``."""
        parameters(request.scope)
        now = self._lists.require_readable()
        key = _key_of(request)
        catalog = self._instance.catalog
        found = catalog.lookup(key)
        if found.listed is None and found.removal is None and found.reason is None:
            raise NotFound(f"The pool {key} is not listed, and nothing is remembered of it.")
        return json_response(
            OnePool(
                key=key,
                listed=found.listed is not None,
                pool=None if found.listed is None else pool_of(found.listed.body),
                lease=found.lease,
                conflict=found.conflict,
                removal=found.removal if found.listed is None else None,
                changes=change_entries(catalog.boot_id, catalog.change_log.latest_of(key, LAST_CHANGES)),
                complete=now.complete,
                revision=catalog.revision,
                sources=now.sources,
            )
        )


def _key_of(request: Request) -> PoolKey:
    key = PoolKey(**request.path_params)
    check_key(key)
    return key


def service_headers(instance: Instance) -> Callable[[], Headers]:
    """The headers of every response. A list has its own revision and completeness, as of its encoding."""
    catalog = instance.catalog
    boot_id = instance.info.boot_id.encode()

    def headers() -> Headers:
        now = catalog.completeness()
        revision = b"%b.%d" % (boot_id, catalog.change_log.number)
        return [*_state_headers(revision, complete=now.complete), (b"poolmuster-instance", boot_id)]

    return headers


def _state_headers(revision: bytes, *, complete: bool) -> Headers:
    return [(b"poolmuster-revision", revision), (b"poolmuster-complete", b"true" if complete else b"false")]
