"""An OpenAI-compatible server that does as a test says: ``python -m tests.support.model_server PORT``.

``POST /control`` takes the new state as JSON: ``health`` and ``models_status`` are statuses, ``models`` the entries of
``/v1/models``, ``ready`` the status of each model's ready page by raw id, ``hang`` makes every answer wait.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.ports import free_port
from tests.support.process import Program


class ScriptedServer:
    """The server. State is what `/control` was last told."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"health": 200, "models_status": 200, "models": [{"id": "org/model"}], "ready": {}}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path = request.raw_path
        if path == "/control":
            self.state |= await request.json()
            return web.json_response(self.state)
        if path == "/alive":
            return web.Response()
        while self.state.get("hang"):
            await asyncio.sleep(0.05)
        if path == "/health":
            return web.Response(status=self.state["health"])
        if path == "/v1/models":
            return web.json_response({"data": self.state["models"]}, status=self.state["models_status"])
        model_id = path.removeprefix("/v1/models/").removesuffix("/ready")
        return web.Response(status=self.state["ready"].get(model_id, 404))


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    runner = web.ServerRunner(web.Server(ScriptedServer().answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


class ModelServer:
    """The running server, from the test's side."""

    def __init__(self, program: Program, url: str) -> None:
        self.program = program
        self.url = url

    async def say(self, **state: Any) -> None:
        """Change what it does."""
        async with aiohttp.ClientSession() as session, session.post(f"{self.url}/control", json=state) as answer:
            assert answer.status == 200


@asynccontextmanager
async def model_server(folder: Path) -> AsyncIterator[ModelServer]:
    """A server in a process of its own, healthy, with one model."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = (sys.executable, "-m", "tests.support.model_server", str(port))
    async with Program(*command, folder=folder, ready_url=f"{url}/alive", name="model-server") as program:
        yield ModelServer(program, url)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
