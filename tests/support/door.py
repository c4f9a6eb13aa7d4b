"""``python -m tests.support.door FD PORT``: carry each connection of a listening socket to a port of the loopback.

The socket was opened in one network namespace and the port is looked for in this process's own: the way in. Where
nothing listens inside, the connection is reset.
"""

import asyncio
import contextlib
import socket
import sys

CHUNK_BYTES = 65_536


async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Carry one direction to its end, and pass the end on."""
    with contextlib.suppress(OSError):  # of which one that is no longer connected is no ConnectionError
        while chunk := await source.read(CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()
        sink.write_eof()
        return
    sink.transport.abort()


async def serve(listener: socket.socket, port: int) -> None:
    """Serve until cancelled."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(carry(reader, inner_writer), carry(inner_reader, writer))
        finally:
            inner_writer.close()
            writer.close()

    server = await asyncio.start_server(connected, sock=listener)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
