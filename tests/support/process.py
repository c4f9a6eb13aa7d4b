"""Real programs under a test: started, waited for, signalled, and always gone when the test is.

async with poolmuster("serve", "--listen", f"127.0.0.1:{port}", folder=tmp_path, ready_url=url) as service:
    ...
    await service.kill()
"""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import aiohttp

POLL_S = 0.02
GRACE_S = 10.0
LOG_TAIL_BYTES = 20_000

_numbers = itertools.count(1)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in the background has its children ignore Ctrl-C, and ours would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class ProgramFailed(AssertionError):
    """A program did not become ready, or ended when it should not have."""


class Program:
    """One process at a time of one command line. As a context manager it starts on entry and is reaped on exit.

    ``ready_url`` is asked until it answers 200; ``ready_line`` is a regular expression that standard output or error
    must come to match. ``prefix`` is put before the command, such as `tests.support.netns.PrivateNetwork.prefix`.
    What it wrote is printed when it is reaped: pytest shows that for a test that failed.
    """

    def __init__(
        self,
        *command: str | os.PathLike[str],
        folder: Path,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        ready_url: str | None = None,
        ready_line: str | None = None,
        ready_timeout_s: float = 20.0,
        name: str | None = None,
    ) -> None:
        self.command = [*prefix, *(os.fspath(word) for word in command)]
        self.env = dict(os.environ) | dict(env or {})
        self.ready_url = ready_url
        self.ready_line = ready_line
        self.ready_timeout_s = ready_timeout_s
        self.name = name or Path(command[0]).name
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.name}-{next(_numbers)}"
        self.stdout_path = folder / f"{stem}.stdout"
        self.stderr_path = folder / f"{stem}.stderr"
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.reap()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.reap()

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def returncode(self) -> int | None:
        """How it ended, negative for a signal; ``None`` while it runs."""
        return self._running.returncode

    @property
    def stdout(self) -> str:
        """What it has written to standard output, over all its starts."""
        return self.stdout_path.read_text(errors="replace") if self.stdout_path.exists() else ""

    @property
    def stderr(self) -> str:
        """What it has written to standard error, over all its starts."""
        return self.stderr_path.read_text(errors="replace") if self.stderr_path.exists() else ""

    async def start(self) -> None:
        """Start it, again after it ended, and wait until it is ready. Raises `ProgramFailed`."""
        assert self._process is None or self._process.returncode is not None, f"{self.name} runs already"
        stdout_from, stderr_from = len(self.stdout), len(self.stderr)
        with self.stdout_path.open("ab") as stdout, self.stderr_path.open("ab") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                *self.command, env=self.env, stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        try:
            async with asyncio.timeout(self.ready_timeout_s):
                if self.ready_line is not None:
                    await self._wait_line(self.ready_line, stdout_from, stderr_from)
                if self.ready_url is not None:
                    await self._wait_url(self.ready_url)
        except TimeoutError as error:
            raise ProgramFailed(f"{self.name} was not ready in {self.ready_timeout_s} s") from error

    async def wait_line(self, pattern: str, timeout_s: float = 20.0) -> re.Match[str]:
        """Wait until what it wrote, over all its starts, matches ``pattern``. Raises `ProgramFailed`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wait_line(pattern, 0, 0)
        except TimeoutError as error:
            raise ProgramFailed(f"{self.name} did not write {pattern!r} in {timeout_s} s") from error

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._running.send_signal(number)

    async def terminate(self, timeout_s: float = GRACE_S) -> int:
        """SIGTERM, and wait for the end. Returns how it ended; raises `ProgramFailed` when it does not."""
        self.send_signal(signal.SIGTERM)
        return await self.wait(timeout_s)

    async def interrupt(self, timeout_s: float = GRACE_S) -> int:
        """SIGINT, as Ctrl-C sends it, and wait for the end."""
        self.send_signal(signal.SIGINT)
        return await self.wait(timeout_s)

    async def kill(self) -> None:
        """SIGKILL: no last words. Afterwards the process is gone."""
        self.send_signal(signal.SIGKILL)
        await self.wait()

    async def stop_cont(self, duration_s: float) -> None:
        """Stop the process for ``duration_s``, as a suspended machine does, and let it continue."""
        self.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(duration_s)
        finally:
            self.send_signal(signal.SIGCONT)

    async def wait(self, timeout_s: float = GRACE_S) -> int:
        """Wait until it ends by itself. Raises `ProgramFailed` when it does not."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._running.wait()
        except TimeoutError as error:
            raise ProgramFailed(f"{self.name} did not end in {timeout_s} s") from error

    async def reap(self) -> None:
        """End it by whatever it takes, and print what it wrote. Safe to call again."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            for number in (signal.SIGCONT, signal.SIGTERM):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
            try:
                async with asyncio.timeout(GRACE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        print(f"--- {self.name} (pid {process.pid}) ended with {process.returncode}: {' '.join(self.command)}")
        for stream, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            if text:
                print(f"--- {self.name} {stream}\n{text[-LOG_TAIL_BYTES:]}")

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    def _must_run(self) -> None:
        if self.returncode is not None:
            raise ProgramFailed(f"{self.name} ended with {self.returncode} before it was ready:\n{self.stderr[-2000:]}")

    async def _wait_line(self, pattern: str, stdout_from: int, stderr_from: int) -> re.Match[str]:
        while True:
            ended = self.returncode is not None
            for text in (self.stdout[stdout_from:], self.stderr[stderr_from:]):
                if found := re.search(pattern, text, re.MULTILINE):
                    return found
            if ended:
                self._must_run()
            await asyncio.sleep(POLL_S)

    async def _wait_url(self, url: str) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while True:
                self._must_run()
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(url) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(POLL_S)


def poolmuster(
    *arguments: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    ready_url: str | None = None,
    ready_line: str | None = None,
    ready_timeout_s: float = 20.0,
) -> Program:
    """The program ``poolmuster``, not yet started. This shell's variables ``POOLMUSTER_*`` do not reach it."""
    program = Program(
        sys.executable,
        "-m",
        "poolmuster",
        *arguments,
        folder=folder,
        env=env,
        prefix=prefix,
        ready_url=ready_url,
        ready_line=ready_line,
        ready_timeout_s=ready_timeout_s,
        name=f"poolmuster-{arguments[0]}" if arguments else "poolmuster",
    )
    for name in os.environ:
        if name.startswith("POOLMUSTER_") and name not in (env or {}):
            del program.env[name]
    return program
