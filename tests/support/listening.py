"""Servers of the tests' own on loopback, of which nothing is left when they end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """Each connection to the address that this gives, as ``http://127.0.0.1:PORT``, is handed to ``serve``."""
    tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)

    def over(task: asyncio.Task[None]) -> None:
        # Not by the task itself: one that is cancelled before its first step would leave the connection open.
        tasks.pop(task).close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(run(reader, writer))
        tasks[task] = writer
        task.add_done_callback(over)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close a turn later
