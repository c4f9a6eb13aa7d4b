"""Proxies of TCP between machines: one that takes turns among servers, and one that delivers late."""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.support.door import CHUNK_BYTES, carry

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Pair]]
ConnectFor = Callable[[str], Awaitable[Pair]]
"""The same for a client at an address."""

Delay = Callable[[], float]


def at_once() -> float:
    """No delay."""
    return 0.0


class Proxy:
    """Hands each connection to what ``connect`` gives. Answers come ``late_s()`` later than they were sent, in order.

    What is under way keeps the delay that it was given. A request that holds the bytes ``withholds`` gets no answer,
    as from a proxy that keeps answers until they are whole. ``carried_bytes`` is all that was passed on.
    """

    def __init__(self, connect: ConnectFor) -> None:
        self.connect = connect
        self.late_s: Delay = at_once
        self.withholds: bytes | None = None
        self.carried_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve the connections of a listening socket."""

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(accept, sock=listener)
        try:
            yield
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End every connection that is open now."""
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await self.connect(writer.get_extra_info("peername")[0])
        except OSError:
            writer.transport.abort()
            return
        try:
            with contextlib.suppress(OSError):
                request = await reader.read(CHUNK_BYTES)
                inner_writer.write(request)
                withheld = self.withholds is not None and self.withholds in request
                answers = self._withhold(inner_reader) if withheld else self._carry_late(inner_reader, writer)
                await asyncio.gather(carry(reader, inner_writer), answers)
        finally:
            inner_writer.transport.abort()
            writer.transport.abort()

    async def _withhold(self, source: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while await source.read(CHUNK_BYTES):
                pass

    async def _carry_late(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            chunk = b"-"
            with contextlib.suppress(OSError):
                while chunk:
                    chunk = await source.read(CHUNK_BYTES)
                    under_way.put_nowait((loop.time() + self.late_s(), chunk))
                return
            under_way.put_nowait((loop.time(), b""))

        reading = asyncio.create_task(read())
        try:
            with contextlib.suppress(OSError):
                while True:
                    due_s, chunk = await under_way.get()
                    await asyncio.sleep(max(0.0, due_s - loop.time()))
                    if not chunk:
                        break
                    self.carried_bytes += len(chunk)
                    sink.write(chunk)
                    await sink.drain()
                sink.write_eof()
        finally:
            reading.cancel()


def always(way: Connect) -> ConnectFor:
    """Every connection goes there."""
    return lambda _: way()


def in_turn(*ways: Connect) -> ConnectFor:
    """Each connection of a client goes to the next of these."""
    turns: Counter[str] = Counter()

    def connect(client: str) -> Awaitable[Pair]:
        turns[client] += 1
        return ways[turns[client] % len(ways)]()

    return connect
