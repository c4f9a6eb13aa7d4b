"""Load over HTTP: connections that send prebuilt bytes and look at no more of an answer than its length.

A client library would take more of the machine than the server, and what is measured would be the client.
"""

import asyncio
import functools
import ssl
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import cast

import msgspec

from bench.programs import Program

HEAD_END = b"\r\n\r\n"


class Measured(msgspec.Struct, frozen=True):
    """What a load came to. ``times_s`` are the answers' times, sorted."""

    count: int
    cpu_s: float
    wall_s: float
    times_s: list[float]

    @property
    def cpu_each_s(self) -> float:
        """The server's time for one."""
        return self.cpu_s / self.count

    def quantile_s(self, part: float) -> float:
        """The time within which ``part`` of the answers came."""
        return self.times_s[min(len(self.times_s) - 1, int(part * len(self.times_s)))]


def get(path: str, *headers: str) -> bytes:
    """A request without a body."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def post(body: bytes, *headers: str) -> bytes:
    """A registration."""
    own = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}")
    return "\r\n".join(["POST /pools HTTP/1.1", *own, *headers]).encode() + HEAD_END + body


class Connection(asyncio.Protocol):
    """One kept connection, one request at a time. ``done`` is called with the status at each answer's end.

    ``head`` is the last answer's, in small letters.
    """

    def __init__(self, done: Callable[["Connection", int], None]) -> None:
        self._done = done
        self._head = b""
        self._left = 0
        self._status = 0
        self._transport: asyncio.Transport | None = None
        self.sent_s = 0.0
        self.head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def send(self, request: bytes) -> None:
        assert self._transport is not None, "connected"
        self.sent_s = time.perf_counter()
        self._transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
        else:
            self._head += data
            end = self._head.find(HEAD_END)
            if end < 0:
                return
            head = self.head = self._head[:end].lower()
            self._status = int(head[9:12])
            length = 0 if self._status == 304 else int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            self._left = length - (len(self._head) - end - len(HEAD_END))
            self._head = b""
        if not self._left:
            self._done(self, self._status)


async def closed_loop(
    program: Program,
    requests: list[bytes],
    *,
    count: int,
    clients: int,
    status: int | None = 200,
    tls: ssl.SSLContext | None = None,
) -> Measured:
    """``count`` requests, taken from ``requests`` in turn, each connection with one at a time."""
    loop = asyncio.get_running_loop()
    finished = loop.create_future()
    supply: Iterator[bytes] = cycle(requests)
    times_s: list[float] = []
    left = count

    def done(connection: Connection, got: int) -> None:
        nonlocal left
        times_s.append(time.perf_counter() - connection.sent_s)
        if status is not None and got != status and not finished.done():
            finished.set_exception(AssertionError(f"the service answered {got}"))
        if left > 0:
            left -= 1
            connection.send(next(supply))
        elif len(times_s) == count and not finished.done():
            finished.set_result(None)

    connections: list[Connection] = []
    for _ in range(min(clients, count)):
        _, connection = await loop.create_connection(lambda: Connection(done), "127.0.0.1", program.port, ssl=tls)
        connections.append(connection)
    cpu_s, started_s = program.cpu_s(), time.perf_counter()
    for connection in connections:
        left -= 1
        connection.send(next(supply))
    await finished
    wall_s = time.perf_counter() - started_s
    cpu_s = program.cpu_s() - cpu_s
    for connection in connections:
        connection.close()
    return Measured(count, cpu_s, wall_s, sorted(times_s))


class Stream(asyncio.Protocol):
    """A watch. ``heard`` is called with each piece and when it came; ``tail`` keeps the last bytes."""

    def __init__(self, request: bytes, heard: Callable[["Stream", bytes], None]) -> None:
        self._request = request
        self._heard = heard
        self._transport: asyncio.Transport | None = None
        self.tail = b""
        self.bytes = 0
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        self.tail = (self.tail + data)[-512:]
        self._heard(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def open_streams(
    program: Program, targets: list[str], heard: Callable[[Stream, bytes], None], at_once: int = 50
) -> list[Stream]:
    """A watch for each of ``targets``, each past its snapshot when this returns."""
    loop = asyncio.get_running_loop()
    streams: list[Stream] = []
    for start in range(0, len(targets), at_once):
        batch: list[Stream] = []
        for target in targets[start : start + at_once]:
            request = get(target, "Accept: text/event-stream")
            _, stream = await loop.create_connection(
                functools.partial(Stream, request, heard), "127.0.0.1", program.port
            )
            batch.append(stream)
        async with asyncio.timeout(10):
            while not all(b"\n\n" in stream.tail for stream in batch):
                await asyncio.sleep(0.005)
        streams += batch
    return streams
