"""Calls to one instance of the service, each with its timeout and typed errors.

Every call raises `Unreachable` when no whole response came, `InvalidResponse` when the response is not this service's,
and else the error of `poolmuster.model.errors` that the response stands for.
"""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, TypedDict
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from poolmuster.client.errors import InvalidResponse, Unreachable, error_of
from poolmuster.client.responses import ApiResponse, Document, PoolList, RegisterResult, read_pool_list
from poolmuster.client.settings import ClientSettings
from poolmuster.client.transport import Session, call_timeout, proxy_of
from poolmuster.client.watch import WatchStream
from poolmuster.model.errors import Unauthenticated
from poolmuster.model.key import PoolKey
from poolmuster.model.schema import RouterReplica
from poolmuster.platform.ndjson import SizeLimitExceeded, read_body
from poolmuster.platform.net_errors import reason_of

ERROR_LIMIT_BYTES = 256 * 1024
NDJSON = "application/x-ndjson"
PROBLEM = "application/problem+json"

Pairs = tuple[tuple[str, str], ...]
"""Query parameters in order; a name may come again."""


class Filters(TypedDict, total=False):
    """The filters of a list: different ones AND, repeats of one OR, labels (``name`` or ``name=value``) AND."""

    model: str | Iterable[str]
    cluster_id: str | Iterable[str]
    namespace: str | Iterable[str]
    dgd_name: str | Iterable[str]
    region: str | Iterable[str]
    label: str | Iterable[str]
    include: str | Iterable[str]


def pairs_of(filters: Filters) -> Pairs:
    """Filters as query parameters."""
    return tuple(
        (name, value)
        for name, values in filters.items()
        for value in ((values,) if isinstance(values, str) else values)  # type: ignore[attr-defined]
    )


def pool_path(key: PoolKey) -> str:
    """The path of one pool. Every character that could mean something else in a path is escaped, ``/`` too."""
    return "/pools/" + "/".join(quote(part, safe="") for part in key.parts)


class DiscoveryApi:
    """One instance, by its base URL. The session is the caller's."""

    def __init__(self, url: str, session: Session, settings: ClientSettings) -> None:
        self.url = url.rstrip("/")
        self._base = str(URL(self.url))
        self._session = session
        self._settings = settings
        self._proxy = proxy_of(self.url)

    async def register(
        self, registration: bytes | Mapping[str, Any], *, timeout_s: float | None = None
    ) -> RegisterResult:
        """Register a pool or renew its lease, by the document or its JSON bytes.

        Raises `InvalidInput`, `RelayDeregistered`, `LimitReached` and others; see the module.
        """
        body = registration if isinstance(registration, bytes) else json.dumps(registration).encode()
        answer = await self._call("POST", "/pools", body=body, timeout_s=timeout_s)
        try:
            return msgspec.convert(answer.document | {"created": answer.status == HTTPStatus.CREATED}, RegisterResult)
        except msgspec.ValidationError as error:
            raise self._bad(f"its answer to a registration is not one ({error})") from error

    async def deregister(
        self,
        key: PoolKey,
        *,
        relay_id: str | None = None,
        reason: str | None = None,
        detail: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Take a pool off the list; with ``relay_id`` only while that relay is the latest to have registered it."""
        given = (("relay_id", relay_id), ("reason", reason), ("detail", detail))
        pairs = tuple((name, value) for name, value in given if value is not None)
        await self._call("DELETE", pool_path(key), pairs, timeout_s=timeout_s, expects_body=False)

    async def list(self, pairs: Pairs = ()) -> PoolList:
        """The live pools that the filters select."""
        answer = await self._call("GET", "/pools", pairs)
        listing = read_pool_list(answer.document, answer.body, answer.instance)
        if listing is None:
            raise self._bad("its answer is not a list of pools")
        return listing

    async def get(self, key: PoolKey) -> ApiResponse:
        """One pool with its lease and changes, listed or removed lately. Raises `NotFound`."""
        return await self._call("GET", pool_path(key))

    async def changes(self, since_s: float | None = None, pairs: Pairs = ()) -> ApiResponse:
        """The changes of the last ``since_s`` seconds in this instance."""
        since = () if since_s is None else (("since", str(since_s)),)
        return await self._call("GET", "/changes", since + pairs)

    async def status(self) -> ApiResponse:
        """The status of this instance."""
        return await self._call("GET", "/status")

    async def routers(self) -> tuple[RouterReplica, ...]:
        """The router replicas that relays should know of."""
        answer = await self._call("GET", "/routers")
        try:
            return msgspec.convert(answer.document.get("routers"), tuple[RouterReplica, ...])
        except msgspec.ValidationError as error:
            raise self._bad("its answer is not a list of routers") from error

    @asynccontextmanager
    async def watch(self, pairs: Pairs = (), last_event_id: str | None = None) -> AsyncIterator[WatchStream]:
        """A watch in lines of JSON. It has no timeout once it is connected."""
        headers = {"Accept": NDJSON, "Accept-Encoding": "identity"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        async with self._request("GET", "/pools/watch", pairs, headers, None) as response:
            if response.content_type != NDJSON:
                raise self._bad(f"its watch is {response.content_type}, not {NDJSON}")
            yield WatchStream(response.content.iter_any(), response.headers.get("Poolmuster-Revision"))

    async def _call(
        self,
        method: str,
        path: str,
        pairs: Pairs = (),
        *,
        body: bytes | None = None,
        timeout_s: float | None = None,
        expects_body: bool = True,
    ) -> ApiResponse:
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": "application/json"})
        timeout_s = timeout_s or self._settings.request_timeout_s
        async with self._request(method, path, pairs, headers, timeout_s, body) as response:
            raw = await self._read(response, self._settings.answer_limit_bytes)
            instance = response.headers.get("Poolmuster-Instance")
        document = self._object(raw) if expects_body else {}
        return ApiResponse(document=document, body=raw, instance=instance, status=response.status)

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        pairs: Pairs,
        headers: Mapping[str, str],
        timeout_s: float | None,
        body: bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response of ``2xx``. Whatever breaks it until the block ends is raised as `Unreachable`."""
        query = "?" + urlencode(pairs, quote_via=quote, safe="") if pairs else ""
        begun = False
        try:
            async with await self._session.request(
                method,
                URL(self._base.rstrip("/") + path + query, encoded=True),  # or %2F would be decoded
                headers=headers,
                timeout=call_timeout(self._settings, timeout_s),
                proxy=self._proxy,
                body=body,
            ) as response:
                begun = True
                await self._check(response)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = reason_of(error, "" if begun else self.url)
            raise Unreachable(f"{self.url} cannot be reached: {reason}.") from error

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.status >= 400:
            raw = await self._read(response, ERROR_LIMIT_BYTES)
            if self._wants_https(response, raw):
                raise self._bad("it speaks TLS there: its URL begins with https")
            error = error_of(self.url, response.status, response.headers, raw)
            if isinstance(error, Unauthenticated):
                self._session.credentials.request_refresh()
                error.presented = self._session.credentials.counts_for(self.url)
            raise error
        if not 200 <= response.status < 300:
            redirect = ", and redirects are not followed" if 300 <= response.status < 400 else ""
            raise self._bad(f"it answered {response.status}{redirect}")

    def _wants_https(self, response: aiohttp.ClientResponse, raw: bytes) -> bool:
        """Whether this is the response that some servers of TLS send in the clear to a client without TLS."""
        foreign = response.status == HTTPStatus.BAD_REQUEST and response.content_type != PROBLEM
        return foreign and self.url.startswith("http:") and b"HTTPS" in raw

    async def _read(self, response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
        try:
            return await read_body(response, limit_bytes)
        except SizeLimitExceeded as error:
            raise self._bad(f"its answer is {error}") from error

    def _object(self, raw: bytes) -> Document:
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise self._bad("its answer is not JSON") from error
        if not isinstance(document, dict):
            raise self._bad("its answer is not a JSON object")
        return document

    def _bad(self, what: str) -> InvalidResponse:
        return InvalidResponse(f"What answers at {self.url} is not the discovery service: {what}.")
