"""A stream of bytes cut into lines, of any length up to a bound, in time linear to their length."""

from poolmuster.client.errors import InvalidResponse


class LineSplitter:
    r"""Lines end with ``\n`` alone: other line breaks may stand inside JSON strings."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their ends. Raises `InvalidResponse` when one is too long."""
        first, *rest = chunk.split(b"\n")
        lines: list[bytes] = []
        self._add(first)
        for piece in rest:
            lines.append(b"".join(self._parts))
            self._parts.clear()
            self._size = 0
            self._add(piece)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit_bytes:
            raise InvalidResponse(f"A line of the watch is over {self._limit_bytes} bytes.")
        if piece:
            self._parts.append(piece)
