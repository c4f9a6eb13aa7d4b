"""A network of its own for programs that listen on every address: only what runs in it can reach them.

It is a network namespace with nothing but a loopback, and doors: each is a TCP port of this machine's loopback that
leads to one port inside.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

from tests.support.parts import ROOT
from tests.support.process import Program

_HOLD = """
import fcntl, signal, socket, struct
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
with socket.socket() as probe:
    fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))
print("up", flush=True)
signal.pause()
"""

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class PrivateNetwork:
    """The network, kept up by one waiting process. Needs root (`tests.support.parts.PRIVATE_NETWORK`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._holder = Program(
            "unshare", "--net", sys.executable, "-c", _HOLD, folder=folder, ready_line="^up$", name="network"
        )

    async def __aenter__(self) -> Self:
        await self._holder.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._holder.reap()

    @property
    def pid(self) -> int:
        """The process that keeps it up."""
        return self._holder.pid

    def socket(
        self, kind: socket.SocketKind = socket.SOCK_STREAM, family: socket.AddressFamily = socket.AF_INET
    ) -> socket.socket:
        """A socket of this process that is inside, not blocking: where a socket was made is where it stays."""
        with Path("/proc/thread-self/ns/net").open() as here, Path(f"/proc/{self.pid}/ns/net").open() as inside:
            _enter(inside.fileno())
            try:
                made = socket.socket(family, kind)
            finally:
                _enter(here.fileno())
        made.setblocking(False)
        return made

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command so that it runs inside."""
        return ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--")

    @contextlib.asynccontextmanager
    async def door(self, port: int) -> AsyncIterator[int]:
        """A port of this machine's loopback that leads to ``port`` inside."""
        with socket.create_server(("127.0.0.1", 0)) as outside:
            process = await asyncio.create_subprocess_exec(
                *self.prefix,
                sys.executable,
                "-m",
                "tests.support.door",
                str(outside.fileno()),
                str(port),
                cwd=ROOT,
                pass_fds=[outside.fileno()],
            )
            try:
                yield outside.getsockname()[1]
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def _enter(network: int) -> None:
    """Take this thread into another network namespace. Nothing else of this thread may run until it is back."""
    if _libc.setns(network, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
