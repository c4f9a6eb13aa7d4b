"""``python -m bench.bare PORT BYTES``: a loop that does nothing but write so many bytes for whatever it is sent.

What a list costs at the least: the kernel's copying and waking, which no program avoids that sends it over TCP.
"""

import asyncio
import sys
from typing import cast

import uvloop

PART_BYTES = 512 * 1024


class Bare(asyncio.Protocol):
    """One connection. A request is taken to come in one piece."""

    def __init__(self, answer: list[bytes]) -> None:
        self._answer = answer
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None, "connected"
        for part in self._answer:
            self._transport.write(part)


async def serve(port: int, size_bytes: int) -> None:
    """Serve until killed."""
    body = b"x" * size_bytes
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {size_bytes}\r\n\r\n".encode()
    answer = [head, *(body[start : start + PART_BYTES] for start in range(0, size_bytes, PART_BYTES))]
    server = await asyncio.get_running_loop().create_server(lambda: Bare(answer), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), int(sys.argv[2])))
