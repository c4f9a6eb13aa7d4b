"""The two calls of the hot path, ``Query`` and ``PutItem``: signed, timed, decoded, and no error without a reason."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from botocore.utils import get_environ_proxies

from poolmuster.model.source import SourceReason
from poolmuster.platform.resolver import Resolver
from poolmuster.ports.clock import Clock
from poolmuster.sources.dynamodb.aws import AwsSigner, TableLocation
from poolmuster.sources.dynamodb.errors import ROTATED, StoreError, error_of
from poolmuster.sources.dynamodb.items import PARTITION, Attributes, PutItemOutput, QueryOutput
from poolmuster.sources.dynamodb.server_clock import ServerClock

CONNECTIONS = {"Query": 16, "PutItem": 256}
"""How many connections each kind of call may have; one reads the list, the others are for those that leave."""

ANSWER_LIMIT_BYTES = 16 * 1024 * 1024
"""A page holds 1 MB of items, and JSON may write a character in six."""

_page = msgspec.json.Decoder(QueryOutput)
_written = msgspec.json.Decoder(PutItemOutput)


class DynamoClient:
    """Calls of one table. `open` before use, `close` at the end."""

    def __init__(
        self,
        place: TableLocation,
        access: AwsSigner,
        clock: Clock,
        table_clock: ServerClock,
        consumed: Callable[[str, float], None],
        tls: ssl.SSLContext | bool = True,
    ) -> None:
        self.location = place
        self._access = access
        self._clock = clock
        self._table_clock = table_clock
        self._consumed = consumed
        self._tls = tls
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._proxy = get_environ_proxies(place.endpoint_url).get(urlsplit(place.endpoint_url).scheme)

    async def open(self) -> None:
        """Make the connection pools: reads have their own.

        Else, after an outage, a read could come upon the many connections that writes have left and that are dead
        without anybody having said so, one after the other.
        """
        for target, limit in CONNECTIONS.items():
            self._sessions[target] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=limit, resolver=Resolver(), ssl=self._tls),
                trust_env=False,  # it would send what stands in ~/.netrc, and read that file for each call
                raise_for_status=False,
            )

    async def close(self) -> None:
        """Drop the connections."""
        for session in self._sessions.values():
            await session.close()

    async def page(self, start: Attributes | None, timeout_s: float, *, sort_key: str | None = None) -> QueryOutput:
        """One page of all pools, or of one, read consistently. Raises `StoreError`."""
        condition, values = "pk = :p", {":p": {"S": PARTITION}}
        if sort_key is not None:
            condition, values[":s"] = "pk = :p AND sk = :s", {"S": sort_key}
        request: dict[str, Any] = {
            "TableName": self.location.table,
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": values,
            "ConsistentRead": True,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if start is not None:
            request["ExclusiveStartKey"] = start
        body = await self._call("Query", request, timeout_s)
        try:
            page = _page.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._unexpected("query") from error
        if page.Count != len(page.Items):
            raise self._unexpected("query")
        self._count("read", page.ConsumedCapacity)
        return page

    async def put(self, item: Attributes, timeout_s: float, condition: dict[str, Any] | None = None) -> None:
        """Write one item. Raises `StoreError`, `ConditionFailed`; after `StoreError` it may have been written."""
        request = {
            "TableName": self.location.table,
            "Item": item,
            "ReturnConsumedCapacity": "TOTAL",
            **(condition or {}),
        }
        body = await self._call("PutItem", request, timeout_s)
        try:
            written = _written.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._unexpected("put") from error
        self._count("write", written.ConsumedCapacity)

    def _unexpected(self, what: str) -> StoreError:
        return StoreError(SourceReason.BAD_ANSWER, f"{self.location} answered a {what} with something else")

    def _count(self, kind: str, capacity: dict[str, Any] | None) -> None:
        units = (capacity or {}).get("CapacityUnits")
        if isinstance(units, int | float) and units >= 0:
            self._consumed(kind, float(units))

    async def _call(self, target: str, request: dict[str, Any], timeout_s: float) -> bytes:
        assert self._sessions, "open comes first"
        body = msgspec.json.encode(request)
        # Unpacking a megabyte would hold the event loop, and could come to any size.
        headers = self._access.sign(target, body) | {"Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._sessions[target].post(
                    self.location.endpoint_url + "/",
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxy,
                ) as answer,
            ):
                content = await self._read(answer)
        except TimeoutError as error:
            raise StoreError(
                SourceReason.TIMEOUT, f"{self.location} did not answer within {timeout_s:.1f} s"
            ) from error
        except aiohttp.ClientConnectorDNSError as error:
            raise StoreError(SourceReason.DNS_FAILED, f"{self.location} has no address: {error}") from error
        except (aiohttp.ClientError, ValueError) as error:
            # The latter where a proxy's URL, or a host, is none.
            raise StoreError(SourceReason.UNREACHABLE, f"{self.location} cannot be reached: {error}") from error
        fault = None if answer.status == 200 else error_of(answer.status, content, str(self.location))
        if not isinstance(fault, StoreError) or fault.code:
            # What is no error of DynamoDB's came from something in between, and with it that machine's time.
            self._table_clock.observe(answer.headers.get("Date"), self._clock.monotonic_ms())
        if fault is not None:
            raise self._mark(fault)
        return content

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for piece in answer.content.iter_any():
            content += piece
            if len(content) > ANSWER_LIMIT_BYTES:
                raise StoreError(SourceReason.BAD_ANSWER, f"{self.location} answered more than a page can hold")
        return bytes(content)

    def _mark(self, error: Exception) -> Exception:
        """``error``, with what only this side knows about it; and the credentials are told where it is theirs."""
        if not isinstance(error, StoreError):
            return error
        rotated = error.reason is SourceReason.ACCESS_DENIED and error.code in ROTATED
        if rotated or error.reason is SourceReason.CREDENTIALS_EXPIRED:
            self._access.refused()
        elif error.reason is SourceReason.CLOCK_SKEW:
            ahead_s = self._table_clock.skew_ms(self._clock.monotonic_ms(), self._clock.wall_ms()) / 1000
            where = "ahead of" if ahead_s > 0 else "behind"
            return error.with_detail(f"this machine's clock is {abs(ahead_s):.0f} s {where} the table's")
        return error
