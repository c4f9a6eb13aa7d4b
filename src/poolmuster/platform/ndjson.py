"""Bounded input: newline-delimited JSON cut into lines, and whole response bodies.

A sender decides neither how much memory a line takes nor how much a body takes.
"""

from collections.abc import Iterator

import aiohttp


class SizeLimitExceeded(Exception):
    """A line or a body is over ``limit_bytes``. The caller translates it into an error of its own."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"over {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class LineSplitter:
    r"""Cuts chunks of bytes into lines of at most ``limit_bytes``, in time linear to their length.

    A line ends with ``\n`` alone: other line breaks may stand inside JSON strings.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the lines that ``chunk`` completes, without their ends.

        Raises `SizeLimitExceeded` at the first line over the limit, after the lines before it.
        """
        first, *rest = chunk.split(b"\n")
        self._add(first)
        for piece in rest:
            line = b"".join(self._parts)
            self._parts.clear()
            self._size_bytes = 0
            yield line
            self._add(piece)

    def _add(self, piece: bytes) -> None:
        self._size_bytes += len(piece)
        if self._size_bytes > self._limit_bytes:
            raise SizeLimitExceeded(self._limit_bytes)
        if piece:
            self._parts.append(piece)


async def read_body(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """The body of ``response``. Raises what aiohttp does when the body is cut short.

    Raises `SizeLimitExceeded` for a body over ``limit_bytes``; leaving the response then closes its connection.
    """
    parts: list[bytes] = []
    size_bytes = 0
    async for chunk in response.content.iter_any():
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise SizeLimitExceeded(limit_bytes)
        parts.append(chunk)
    return b"".join(parts)
