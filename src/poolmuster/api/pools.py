"""``/pools`` and ``/pools/{cluster_id}/{namespace}/{dgd_name}``: register, leave, list, one pool."""

import time

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from poolmuster.api.changes import change_entries
from poolmuster.api.list_responses import GZIP_FROM_BYTES, ListCache, ListResponse
from poolmuster.api.metrics import Metrics
from poolmuster.api.negotiation import accepts_gzip, etag_matches
from poolmuster.api.query import check_known, list_query, parameters, single
from poolmuster.api.schemas import OnePool, pool_of
from poolmuster.http.auth import Authorizer
from poolmuster.http.auth_log import client_of
from poolmuster.http.router import read_json_body
from poolmuster.model.auth import Role
from poolmuster.model.change import DETAIL_LIMIT, Deregistration, DeregistrationReason
from poolmuster.model.errors import FieldError, InvalidInput, NotFound
from poolmuster.model.key import PoolKey, check_key
from poolmuster.model.registration import RELAY_ID_LIMIT
from poolmuster.service.instance import Instance

LAST_CHANGES = 10

log = structlog.get_logger(__name__)


class PoolHandlers:
    """Handlers of the paths under ``/pools``, but for the watch."""

    def __init__(
        self, instance: Instance, lists: ListCache, metrics: Metrics, authorizer: Authorizer, body_limit_bytes: int
    ) -> None:
        self._instance = instance
        self._lists = lists
        self._metrics = metrics
        self._gate = authorizer
        self._body_limit_bytes = body_limit_bytes
        self._encoder = msgspec.json.Encoder()

    async def register(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``POST /pools``: plain ASGI, as this is what the service does all day."""
        if scope["query_string"]:
            check_known(parameters(scope), ())
        body = await read_json_body(scope, receive, self._body_limit_bytes)
        # From here: how long a relay takes to send, and to read the answer, says nothing of the service.
        started_s = time.perf_counter()
        # Asked again, as a body may take its time to come, and credentials may be revoked meanwhile.
        principal = self._gate.reauthorize(scope["auth"], Role.REGISTER).principal
        taken = await self._instance.registrar.register_body(body, principal)
        self._metrics.registered(taken.created, time.perf_counter() - started_s)
        if taken.created:
            # Before the answer: it is done, whether or not the client is there to hear of it.
            log.info("A pool was registered", pool=str(taken.key), principal=principal.name, client=client_of(scope))
        content = self._encoder.encode(taken.answer)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 201 if taken.created else 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def list_pools(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``GET /pools``."""
        query = list_query(scope)
        answer = await self._lists.answer(query)
        headers = [
            (b"vary", b"accept-encoding"),
            (b"cache-control", b"no-cache"),
            (b"poolmuster-revision", answer.revision),
            (b"poolmuster-complete", b"true" if answer.complete else b"false"),
        ]
        if answer.etag:
            headers.append((b"etag", answer.etag))
            if etag_matches(scope, answer.etag):
                self._metrics.lists_not_modified.inc()
                await send({"type": "http.response.start", "status": 304, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
        self._metrics.lists_sent.inc()
        await self._send_list(scope, send, answer, headers, lease=query.lease)

    async def _send_list(
        self, scope: Scope, send: Send, answer: ListResponse, headers: list[tuple[bytes, bytes]], *, lease: bool
    ) -> None:
        headers.append((b"content-type", b"application/json"))
        body = self._lists.stream_with_leases(answer) if lease else answer.stream()
        zipped = None
        if not lease:
            size_bytes = answer.size_bytes
            if size_bytes >= GZIP_FROM_BYTES and accepts_gzip(scope):
                zipped = await self._lists.gzipped(answer)
            if zipped is not None:
                headers.append((b"content-encoding", b"gzip"))
                size_bytes = len(zipped)
            headers.append((b"content-length", b"%d" % size_bytes))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        if zipped is not None:
            await send({"type": "http.response.body", "body": zipped})
            return
        async for piece in body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def leave(self, request: Request) -> Response:
        """``DELETE /pools/{key}``."""
        key = _key_of(request)
        found = parameters(request.scope)
        check_known(found, ("relay_id", "reason", "detail"))
        reason = single(found, "reason")
        if reason is not None and reason not in set(DeregistrationReason):
            allowed = ", ".join(DeregistrationReason)
            raise InvalidInput("The reason is not known.", (FieldError("reason", f"is one of {allowed}"),))
        relay_id = single(found, "relay_id")
        if relay_id == "":
            raise InvalidInput("The relay id is empty.", (FieldError("relay_id", "must not be empty"),))
        if relay_id is not None and len(relay_id) > RELAY_ID_LIMIT:
            fault = FieldError("relay_id", f"has more than {RELAY_ID_LIMIT} characters")
            raise InvalidInput("The relay id is too long.", (fault,))
        detail = single(found, "detail")
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
            # Taken, as with a relay's id it acts only while that relay is the latest.
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
        check_known(parameters(request.scope), ())
        self._lists.require_readable()
        key = _key_of(request)
        catalog = self._instance.catalog
        now = catalog.completeness()
        found = catalog.lookup(key)
        if found.listed is None and found.removal is None and found.reason is None:
            raise NotFound(f"The pool {key} is not listed, and nothing is remembered of it.")
        body = OnePool(
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
        return Response(msgspec.json.encode(body), media_type="application/json", headers={"cache-control": "no-cache"})


def _key_of(request: Request) -> PoolKey:
    parameters_found = request.path_params
    key = PoolKey(parameters_found["cluster_id"], parameters_found["namespace"], parameters_found["dgd_name"])
    check_key(key)
    return key
