"""The demo's processes: started tied to it, watched, and ended in order."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

STOP_LIMIT_S = 6.0
"""Every program of ours is out within five seconds of SIGTERM."""

LOG_TAIL_LINES = 5


class ChildProcess:
    """One process. ``on_death`` is called when it ends without having been told to."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, log: Path, on_death: Callable[["ChildProcess"], None]
    ) -> None:
        self.name = name
        self.pid = process.pid
        self.log = log
        self._process = process
        self._on_death = on_death
        self._stopping = False
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        await self._process.wait()
        if not self._stopping:
            self._on_death(self)

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    @property
    def failed(self) -> bool:
        """Whether it ended, and not in good order."""
        return bool(self._process.returncode)

    @property
    def ending(self) -> str:
        """How it ended, for people."""
        code = self._process.returncode
        if code is None:
            return "still runs"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def log_tail(self) -> list[str]:
        """The last lines it wrote."""
        return self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]

    async def stop(self) -> None:
        """End it by SIGTERM, and if it does not heed that by SIGKILL."""
        self._stopping = True
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(self._watching), STOP_LIMIT_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._watching


class ProcessGroup:
    """All processes of the demo, with a folder for what they write. A context manager that leaves none behind."""

    def __init__(self, on_death: Callable[[ChildProcess], None]) -> None:
        self._on_death = on_death
        self._folder = tempfile.TemporaryDirectory(prefix="poolmuster-demo-")
        self.all: dict[str, ChildProcess] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop(list(self.all))
        self._folder.cleanup()

    @property
    def folder(self) -> Path:
        """Where each child's output is, as ``<name>.log``."""
        return Path(self._folder.name)

    async def start(self, name: str, module: str, arguments: list[str]) -> ChildProcess:
        """Start ``python -m module``, in a session of its own so that Ctrl-C reaches only the demo."""
        log = self.folder / f"{name.replace(' ', '-')}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "poolmuster.demo.die_with_parent", str(os.getpid()), module, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env=_environment(),
            )
        child = self.all[name] = ChildProcess(name, process, log, self._on_death)
        return child

    async def stop(self, names: list[str]) -> None:
        """End these, all at once."""
        await asyncio.gather(*(self.all[name].stop() for name in names))


def _environment() -> dict[str, str]:
    """The environment without the variables that are flags: the demo's programs are told all by their arguments."""
    return {name: value for name, value in os.environ.items() if not name.startswith("POOLMUSTER_")}
