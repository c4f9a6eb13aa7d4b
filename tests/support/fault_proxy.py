"""A proxy between the service and its table that fails in every way a network or a server can.

It speaks HTTP on both sides, so that it can hold back, break or rewrite one kind of call and pass on the rest.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import aiohttp
import msgspec

from tests.support.listening import listening

AMZ_JSON = "application/x-amz-json-1.0"
DELAY_S = 5.0
DRIP_S = 0.1
MAX_CLOCK_ERROR_S = 300


class Fault(StrEnum):
    """What is done to a call."""

    NONE = "none"
    DELAY = "delay"
    CUT = "cut"
    BLACK_HOLE = "black_hole"
    DRIP = "drip"
    RESET = "reset"
    ERROR_500 = "error_500"
    THROTTLING = "throttling"


class Call(msgspec.Struct):
    """A call that came, as ``target`` (``Query``, ``PutItem``) and decoded request."""

    target: str
    request: dict[str, Any]
    headers: dict[str, str]


class Answer(msgspec.Struct):
    """An answer to be given in the server's place."""

    status: int
    document: Any


def error(code: str, message: str = "no", status: int = 400) -> Answer:
    """An error in DynamoDB's form."""
    return Answer(status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message})


Decide = Callable[[Call], Fault | Answer]
Rewrite = Callable[[Call, dict[str, Any]], dict[str, Any]]


class FaultProxy:
    """Passes everything on until ``decide`` says otherwise. `fault` is for all calls alike."""

    def __init__(self, upstream: str, url: str) -> None:
        self.upstream = upstream
        self.url = url
        self.fault = Fault.NONE
        self.decide: Decide = lambda call: self.fault
        self.rewrite: Rewrite = lambda call, document: document
        self.counts: dict[str, int] = {}
        self.reading = 0
        self.most_reading = 0
        """How many reads of the list were under way at once, at most."""

    def count(self, target: str) -> int:
        """How many calls of ``target`` have come."""
        return self.counts.get(target, 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, aiohttp.ClientError):
            async with aiohttp.ClientSession(auto_decompress=False) as session:
                while (call := await self._read(reader)) is not None:
                    handling = asyncio.create_task(self._handle(call, session, writer))
                    try:
                        while not (handling.done() or reader.at_eof()):
                            await asyncio.wait((handling,), timeout=0.05)
                    finally:
                        # The other side is gone, or the proxy is to end.
                        handling.cancel()
                        await asyncio.gather(handling, return_exceptions=True)
                    if not handling.cancelled():
                        handling.result()

    async def _read(self, reader: asyncio.StreamReader) -> tuple[Call, bytes] | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        headers = {}
        for line in head.decode("latin-1").split("\r\n")[1:-2]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        target = headers.get("x-amz-target", "").rpartition(".")[2]
        return Call(target, json.loads(body or b"{}"), headers), body

    async def _handle(
        self, read: tuple[Call, bytes], session: aiohttp.ClientSession, writer: asyncio.StreamWriter
    ) -> None:
        call, body = read
        self.counts[call.target] = self.counts.get(call.target, 0) + 1
        lists = call.target == "Query" and ":s" not in call.request.get("ExpressionAttributeValues", {})
        self.reading += lists
        self.most_reading = max(self.most_reading, self.reading)
        try:
            await self._answer(call, body, session, writer)
        finally:
            self.reading -= lists

    async def _answer(
        self, call: Call, body: bytes, session: aiohttp.ClientSession, writer: asyncio.StreamWriter
    ) -> None:
        decided = self.decide(call)
        if isinstance(decided, Answer):
            await _write(writer, decided.status, json.dumps(decided.document).encode())
            return
        if await self._fail(decided, writer):
            return
        names = ("x-amz-target", "content-type", "authorization", "x-amz-date", "x-amz-security-token")
        headers = {name: call.headers[name] for name in names if name in call.headers}
        async with session.post(self.upstream, data=body, headers=headers) as answer:
            content = await answer.read()
            status, date = answer.status, answer.headers.get("Date")
        if status == 200:
            content = json.dumps(self.rewrite(call, json.loads(content))).encode()
        await _write(writer, status, content, date, drip=decided is Fault.DRIP)

    async def _fail(self, fault: Fault, writer: asyncio.StreamWriter) -> bool:
        """Do what ``fault`` says. Returns whether the call is over with that."""
        match fault:
            case Fault.DELAY:
                await asyncio.sleep(DELAY_S)
            case Fault.BLACK_HOLE:
                await asyncio.Event().wait()
            case Fault.CUT:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: 9999\r\n\r\n{"
                )
                await writer.drain()
                writer.close()
                return True
            case Fault.RESET:
                endpoint: socket.socket = writer.get_extra_info("socket")
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return True
            case Fault.ERROR_500:
                await _write(writer, 500, b'{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}')
                return True
            case Fault.THROTTLING:
                answer = error("ProvisionedThroughputExceededException", "The level of configured throughput")
                await _write(writer, answer.status, json.dumps(answer.document).encode())
                return True
        return False


async def _write(
    writer: asyncio.StreamWriter, status: int, content: bytes, date: str | None = None, *, drip: bool = False
) -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {AMZ_JSON}\r\nContent-Length: {len(content)}\r\n"
    head += f"Date: {date}\r\n\r\n" if date else "\r\n"
    whole = head.encode() + content
    if drip:
        for place in range(len(whole)):
            writer.write(whole[place : place + 1])
            await writer.drain()
            await asyncio.sleep(DRIP_S)
    writer.write(whole if not drip else b"")
    await writer.drain()


def refuse_old_signatures(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Decide:
    """As AWS does: a signature over five minutes off is refused."""

    def decide(call: Call) -> Fault | Answer:
        signed = datetime.strptime(call.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        off_s = (signed - now()).total_seconds()
        if abs(off_s) <= MAX_CLOCK_ERROR_S:
            return Fault.NONE
        stamp, other = call.headers["x-amz-date"], now().strftime("%Y%m%dT%H%M%SZ")
        said = (
            f"Signature expired: {stamp} is now earlier than {other} ({other} - 5 min.)"
            if off_s < 0
            else f"Signature not yet current: {stamp} is still later than {other} ({other} + 5 min.)"
        )
        return Answer(400, {"__type": "com.amazon.coral.service#InvalidSignatureException", "message": said})

    return decide


@contextlib.asynccontextmanager
async def fault_proxy(upstream: str) -> AsyncIterator[FaultProxy]:
    """A proxy in front of ``upstream``, on a port of its own."""
    proxy = FaultProxy(upstream, "")
    async with listening(proxy.serve) as proxy.url:
        yield proxy
