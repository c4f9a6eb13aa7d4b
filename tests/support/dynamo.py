"""NVIDIA Dynamo's frontend and its mocker engine, on the CPU, as a pool to register."""

import asyncio
import contextlib
import subprocess
from pathlib import Path
from typing import Self

import aiohttp

from tests.support.netns import PrivateNetwork
from tests.support.parts import CACHE, DYNAMO, PRIVATE_NETWORK
from tests.support.process import POLL_S, Program, ProgramFailed

INNER_PORT = 8000
MODEL = "tiny"
STARTS_WITHIN_S = 60.0


class Dynamo:
    """A frontend at ``url`` with one engine that serves the model `MODEL`; both run while the context is open.

    They run in a private network, as they listen on every address. The frontend answers ``/health`` with 200 even
    without an engine: what tells is the list of models. After `kill_engine` the model stays listed for about nine
    seconds, after `stop_engine` it goes at once.
    """

    def __init__(self, python: Path, folder: Path, model_folder: Path) -> None:
        self.url = ""
        self._network = PrivateNetwork(folder)
        self._python = python
        self._folder = folder
        self._model_folder = model_folder
        self._frontend: Program | None = None
        self._engine: Program | None = None
        self._open = contextlib.AsyncExitStack()

    @classmethod
    def of_this_machine(cls, folder: Path) -> Self:
        """With the Dynamo that is installed here; the calling test is left out where there is none."""
        python = DYNAMO.require()
        PRIVATE_NETWORK.require()
        return cls(python, folder, tiny_model(python))

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as opening:
            await opening.enter_async_context(self._network)
            door = await opening.enter_async_context(self._network.door(INNER_PORT))
            self.url = f"http://127.0.0.1:{door}"
            listen = ["--http-host", "127.0.0.1", "--http-port", str(INNER_PORT)]
            self._frontend = self._program("dynamo.frontend", *listen, ready_url=f"{self.url}/health")
            self._engine = self._program(
                "dynamo.mocker",
                *("--model-path", str(self._model_folder), "--model-name", MODEL, "--speedup-ratio", "10"),
            )
            await opening.enter_async_context(self._frontend)
            opening.push_async_callback(self._engine.reap)
            await self.start_engine()
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @property
    def frontend(self) -> Program:
        assert self._frontend is not None
        return self._frontend

    @property
    def engine(self) -> Program:
        assert self._engine is not None
        return self._engine

    async def start_engine(self) -> None:
        """Start the engine, and wait until the frontend lists its model."""
        await self.engine.start()
        await self.wait_models([MODEL])

    async def stop_engine(self) -> None:
        """End the engine in order, with SIGTERM, and wait for its end."""
        await self.engine.terminate(timeout_s=30)

    async def kill_engine(self) -> None:
        """End the engine with SIGKILL. The frontend learns of it only when the engine's lease ends."""
        await self.engine.kill()

    async def models(self) -> list[str]:
        """The ids that ``/v1/models`` lists. Raises `aiohttp.ClientError` while the frontend does not answer."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/v1/models") as answer:
            return [model["id"] for model in (await answer.json())["data"]]

    async def wait_models(self, wanted: list[str], timeout_s: float = STARTS_WITHIN_S) -> None:
        """Wait until exactly ``wanted`` is listed. Raises `ProgramFailed`."""
        try:
            async with asyncio.timeout(timeout_s):
                while await self.models() != wanted:
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise ProgramFailed(f"the frontend did not list {wanted} in {timeout_s} s") from error

    def _program(self, module: str, *arguments: str, ready_url: str | None = None) -> Program:
        loopback = ("DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST")
        env = dict.fromkeys(loopback, "127.0.0.1") | {
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_EVENT_PLANE": "zmq",
            "DYN_FILE_KV": str(self._folder / "discovery"),
            "DYN_REQUEST_PLANE": "tcp",
            "HF_HUB_OFFLINE": "1",
        }
        return Program(
            self._python,
            "-m",
            module,
            *arguments,
            folder=self._folder,
            env=env,
            prefix=self._network.prefix,
            ready_url=ready_url,
            ready_timeout_s=STARTS_WITHIN_S,
            name=module,
        )


def tiny_model(python: Path) -> Path:
    """The folder of the tiny model, made by ``python`` if it is not there yet."""
    folder = CACHE / "tiny-model"
    if not (folder / "config.json").exists():
        maker = Path(__file__).parents[1] / "parts" / "make_tiny_model.py"
        subprocess.run([python, maker, folder], check=True, timeout=120)
    return folder
