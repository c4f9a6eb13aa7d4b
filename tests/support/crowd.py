"""Many watchers at once, over plain sockets: a client library would cost more than the service."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from tests.support.streams import Event, read_ndjson

HEAD_END = b"\r\n\r\n"
EVENT_END = b"\n\r\n"
"""The end of a line at the end of a chunk."""


class OpenWatch:
    """One watch as NDJSON, past its snapshot once it is opened."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Ask for the watch and read its snapshot."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /pools/watch HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n")
        head = await reader.readuntil(HEAD_END)
        assert head.startswith(b"HTTP/1.1 200 ")
        await reader.readuntil(EVENT_END)
        return cls(reader, writer)

    async def rest(self) -> list[Event]:
        """What is told until the service ends the stream, read without regard to chunks: each event is in one."""
        data = await self._reader.read(-1)
        lines = [line for line in data.split(b"\r\n") if line.startswith(b"{")]
        return [event for line in lines for event in read_ndjson(line)]

    async def cut(self) -> None:
        """Be gone without a word."""
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


class Crowd:
    """So many watches of one service. Use as ``async with``."""

    def __init__(self, port: int, size: int) -> None:
        self._port = port
        self._size = size
        self.watches: list[OpenWatch] = []

    async def __aenter__(self) -> Self:
        self.watches = await asyncio.gather(*(OpenWatch.open(self._port) for _ in range(self._size)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(watch.cut() for watch in self.watches))
