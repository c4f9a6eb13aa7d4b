"""The two calls of the hot path, ``Query`` and ``PutItem``: signed, timed, decoded, each error with its reason."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from botocore.utils import get_environ_proxies

from poolmuster.model.source import SourceReason
from poolmuster.platform.resolver import Resolver
from poolmuster.ports.clock import Clock
from poolmuster.sources.dynamodb.aws import AwsSigner, TableLocation
from poolmuster.sources.dynamodb.errors import ROTATED, error_of
from poolmuster.sources.dynamodb.items import Attributes, PutItemOutput, QueryOutput
from poolmuster.sources.polled.server_clock import ServerClock
from poolmuster.sources.polled.table import POOL, StoreError

CONNECTIONS = {"Query": 16, "PutItem": 256}
"""How many connections each kind of call may have: one call reads the list, the others deregister."""

CREDENTIALS_WAIT_S = 2.0
"""How long the first call waits for credentials."""

RESPONSE_LIMIT_BYTES = 16 * 1024 * 1024
"""A page holds 1 MB of items, and JSON may write a character in six."""

Output = TypeVar("Output", QueryOutput, PutItemOutput)


class DynamoClient:
    """Calls of one table, made within `opened`. ``consumed`` gets the units that a call took."""

    def __init__(
        self,
        location: TableLocation,
        signer: AwsSigner,
        clock: Clock,
        server_clock: ServerClock,
        consumed: Callable[[str, float], None],
        tls: ssl.SSLContext | bool = True,
    ) -> None:
        self.location = location
        self.server_clock = server_clock
        self._signer = signer
        self._clock = clock
        self._consumed = consumed
        self._tls = tls
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._proxy = get_environ_proxies(location.endpoint_url).get(urlsplit(location.endpoint_url).scheme)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connections and fresh credentials for as long as the context lasts.

        Reads have connections of their own. Otherwise a read after an outage could try the many dead connections of
        writes one after the other.
        """
        async with AsyncExitStack() as stack:
            for target, limit in CONNECTIONS.items():
                connector = aiohttp.TCPConnector(limit=limit, resolver=Resolver(), ssl=self._tls)
                # ``trust_env`` would send what ~/.netrc holds, and read that file for each call.
                session = aiohttp.ClientSession(connector=connector, trust_env=False, raise_for_status=False)
                self._sessions[target] = await stack.enter_async_context(session)
            stack.callback(asyncio.create_task(self._signer.run()).cancel)
            await self._signer.wait_looked(CREDENTIALS_WAIT_S)
            yield

    async def page(
        self, start: Attributes | None, timeout_s: float, *, partition: str = POOL, sort_key: str | None = None
    ) -> QueryOutput:
        """One page of a partition, or one item of it, read consistently. Raises `StoreError`."""
        condition, values = "pk = :p", {":p": {"S": partition}}
        if sort_key is not None:
            condition, values[":s"] = "pk = :p AND sk = :s", {"S": sort_key}
        request: dict[str, Any] = {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": values,
            "ConsistentRead": True,
        }
        if start is not None:
            request["ExclusiveStartKey"] = start
        return await self._call("Query", request, timeout_s, QueryOutput)

    async def put(self, item: Attributes, timeout_s: float, condition: dict[str, Any] | None = None) -> None:
        """Write one item. Raises `StoreError`, `ConditionFailed`; after `StoreError` it may have been written."""
        await self._call("PutItem", {"Item": item, **(condition or {})}, timeout_s, PutItemOutput)

    async def _call(self, target: str, request: dict[str, Any], timeout_s: float, output: type[Output]) -> Output:
        content = await self._send(target, request, timeout_s)
        try:
            found = msgspec.json.decode(content, type=output)
        except (msgspec.DecodeError, RecursionError) as error:
            raise StoreError(SourceReason.BAD_ANSWER, f"{self.location} does not answer as DynamoDB does") from error
        units = (found.ConsumedCapacity or {}).get("CapacityUnits")
        if isinstance(units, int | float) and units >= 0:
            self._consumed("read" if target == "Query" else "write", float(units))
        return found

    async def _send(self, target: str, request: dict[str, Any], timeout_s: float) -> bytes:
        assert self._sessions, "calls are made within opened"
        body = msgspec.json.encode({"TableName": self.location.table, "ReturnConsumedCapacity": "TOTAL"} | request)
        # Decompressing a megabyte would hold the event loop, and could come to any size.
        headers = self._signer.sign(target, body) | {"Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._sessions[target].post(
                    self.location.endpoint_url + "/",
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxy,
                ) as response,
            ):
                content = await self._read(response)
        except TimeoutError as error:
            detail = f"{self.location} did not answer within {timeout_s:.1f} s"
            raise StoreError(SourceReason.TIMEOUT, detail) from error
        except aiohttp.ClientConnectorDNSError as error:
            raise StoreError(SourceReason.DNS_FAILED, f"{self.location} has no address: {error}") from error
        except (aiohttp.ClientError, ValueError) as error:  # the latter where a proxy's URL, or a host, is invalid
            raise StoreError(SourceReason.UNREACHABLE, f"{self.location} cannot be reached: {error}") from error
        error_found = None if response.status == 200 else error_of(response.status, content, str(self.location))
        if not isinstance(error_found, StoreError) or error_found.code:
            # An error that is not DynamoDB's comes from a proxy, and so does its date.
            self.server_clock.observe(response.headers.get("Date"), self._clock.monotonic_ms())
        if error_found is not None:
            raise self._explained(error_found)
        return content

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for piece in response.content.iter_any():
            content += piece
            if len(content) > RESPONSE_LIMIT_BYTES:
                raise StoreError(SourceReason.BAD_ANSWER, f"{self.location} answered more than a page can hold")
        return bytes(content)

    def _explained(self, error: Exception) -> Exception:
        """``error``, with what only this side knows about it. Credentials that were refused are looked up anew."""
        if not isinstance(error, StoreError):
            return error
        rotated = error.reason is SourceReason.ACCESS_DENIED and error.code in ROTATED
        if rotated or error.reason is SourceReason.CREDENTIALS_EXPIRED:
            self._signer.refused()
        elif error.reason is SourceReason.CLOCK_SKEW:
            ahead_s = self.server_clock.skew_ms(self._clock.monotonic_ms(), self._clock.wall_ms()) / 1000
            where = "ahead of" if ahead_s > 0 else "behind"
            return error.with_detail(f"this machine's clock is {abs(ahead_s):.0f} s {where} the table's")
        return error
