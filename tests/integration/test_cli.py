"""The operator's commands and the client against real services: started, killed, restarted, stopped."""

import asyncio
import contextlib
import errno
import json
import os
import pty
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from poolmuster.client import AsyncClient, ClientSettings, Follower
from poolmuster.model.errors import PoolmusterError
from poolmuster.model.key import PoolKey
from tests.support.ports import free_port
from tests.support.process import Program, poolmuster

pytestmark = pytest.mark.integration

LEASE_S = 3.0
PATIENCE_S = 20.0


class Shell:
    """Runs commands against one service."""

    def __init__(self, folder: Path, port: int, lease_s: float = LEASE_S) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.service = poolmuster(
            "serve",
            *("--listen", f"127.0.0.1:{port}"),
            *("--lease-duration-secs", str(lease_s), "--heartbeat-interval-secs", "1"),
            folder=folder,
            ready_url=f"{self.url}/health/live",
        )

    def program(self, *arguments: str) -> Program:
        return poolmuster(*arguments, folder=self.folder, env={"POOLMUSTER_DISCOVERY": self.url})

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of one command."""
        program = self.program(*arguments)
        async with program:
            code = await program.wait()
        return code, program.stdout, program.stderr

    async def register(self, name: str, *flags: str) -> None:
        code, _, stderr = await self.run("register", "--cluster-id", "c", "--namespace", "n", "--name", name, *flags)
        assert code == 0, stderr


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    shell = Shell(tmp_path, free_port())
    async with shell.service:
        yield shell


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[Shell]:
    """With leases that outlast any number of commands."""
    shell = Shell(tmp_path, free_port(), lease_s=600)
    async with shell.service:
        yield shell


async def until(follower: Follower, condition: Callable[[], bool]) -> None:
    updates = follower.updates()
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await anext(updates)


async def keep_registered(client: AsyncClient, *names: str) -> None:
    """Heartbeats of pools of these names, through anything."""
    while True:
        for name in names:
            with contextlib.suppress(PoolmusterError):
                await client.register({"cluster_id": "c", "namespace": "n", "dgd_name": name})
        await asyncio.sleep(0.5)


async def test_a_pool_from_registration_to_its_end(patient: Shell) -> None:
    code, stdout, stderr = await patient.run("pools", "--require-complete")
    assert code == 3
    assert "the list is estimated" in stderr
    assert "complete in " in stderr
    await patient.register("a/b", "--model", "m/x:1", "--model-alias", "m/x:1=x", "--label", "tier=gold")
    assert (await patient.run("pools", "-o", "name", "--model", "x", "--label", "tier"))[1] == "c/n/a%2Fb\n"
    assert (await patient.run("why", "c/n/a%2Fb", "--model", "m/x:1"))[0] == 0
    assert (await patient.run("why", "c/n/a%2Fb", "--model", "m"))[0] == 1
    code, stdout, _ = await patient.run("pools", "-o", "json")
    assert json.loads(stdout)["pools"][0]["dgd_name"] == "a/b"
    assert (await patient.run("deregister", "c/n/a%2Fb", "--detail", "moved"))[0] == 0
    code, stdout, _ = await patient.run("why", "c/n/a%2Fb")
    assert code == 1
    assert "(operator: moved)" in stdout
    _, stdout, _ = await patient.run("changes")
    assert [word for word in stdout.split() if word in ("added", "removed")] == ["added", "removed"]
    code, stdout, _ = await patient.run("status")
    assert code == 0
    assert patient.url in stdout


async def test_a_pool_that_is_not_renewed_expires_and_why_says_so(shell: Shell) -> None:
    await shell.register("a")
    async with AsyncClient(shell.url) as client, client.follow() as follower:
        await until(follower, lambda: len(follower.pools) == 1)
        await until(follower, lambda: not follower.pools)
    code, stdout, _ = await shell.run("why", "c/n/a")
    assert code == 1
    assert "it was not renewed" in stdout


async def test_the_live_list_in_a_pipe(patient: Shell) -> None:
    lines, objects = patient.program("pools", "-w"), patient.program("pools", "-w", "-o", "json", "--region", "here")
    async with lines, objects:
        await lines.wait_line(r"snapshot")
        await objects.wait_line(r'"type":"snapshot"')
        await patient.register("a", "--region", "here")
        await lines.wait_line(r"added +c/n/a")
        await objects.wait_line(r'"type":"added"')
        await patient.register("a", "--region", "there")
        await objects.wait_line(r'"cause":"filtered"')
        await lines.wait_line(r"changed +c/n/a")
        await patient.service.terminate()
        await lines.wait_line(r"cannot be reached")
        await patient.service.start()
        await lines.wait_line(r"(?s)snapshot.*snapshot")
        assert await lines.interrupt() == 130
        assert await objects.interrupt() == 130
    assert all(isinstance(json.loads(line), dict) for line in objects.stdout.splitlines())
    assert "Traceback" not in lines.stderr + objects.stderr


async def test_the_live_list_on_a_terminal(patient: Shell) -> None:
    await patient.register("a", "--model", "\x1b]0;owned\x07")
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "poolmuster", "pools", "-w", "--discovery", patient.url),
        stdout=slave,
        stderr=slave,
        env=dict(os.environ) | {"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(slave)
    shown = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while b"owned" not in shown or b"1 pool, " not in shown:
                shown += await asyncio.to_thread(os.read, master, 4096)
        assert b"\x1b]0;owned" not in shown
        process.terminate()
        with contextlib.suppress(OSError):
            while await asyncio.to_thread(os.read, master, 4096):
                pass
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()
        os.close(master)


async def test_a_pipe_that_closes_ends_the_command_quietly(patient: Shell) -> None:
    for number in range(30):
        async with AsyncClient(patient.url) as client:
            document = {"cluster_id": "c", "namespace": "n", "dgd_name": str(number), "pad": "x" * 10_000}
            await client.register(document)
    read, write = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "poolmuster", "pools", "-o", "json", "--discovery", patient.url),
        stdout=write,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(write)
    assert await asyncio.to_thread(os.read, read, 10)
    os.close(read)
    _, stderr = await process.communicate()
    assert (process.returncode, stderr) == (1, b"")


async def test_the_usable_set_stays_full_through_a_restart(shell: Shell) -> None:
    names = ("a", "b", "c")
    keys = {PoolKey("c", "n", name) for name in names}
    settings = ClientSettings(urls=(shell.url,), backoff_first_ms=50, backoff_limit_ms=200)
    async with AsyncClient(settings) as client, client.follow() as follower:
        beating = asyncio.create_task(keep_registered(client, *names))
        await until(follower, lambda: follower.complete and set(follower.pools) == keys)
        updates = follower.updates()
        await shell.service.kill()
        await until(follower, lambda: not follower.complete)
        assert set(follower.usable) == keys
        await shell.service.start()
        await until(follower, lambda: follower.connected_url is not None)
        assert set(follower.usable) == keys
        await until(follower, lambda: follower.complete)
        assert set(follower.pools) == set(follower.usable) == keys
        assert "removed" not in {update.kind for update in updates.take_all()}
        listing = await client.list()
        assert follower.pools_json == _pools_of(listing.body)
        beating.cancel()


async def test_a_service_that_is_stopped_is_noticed_and_found_again(shell: Shell) -> None:
    """C1, on a real socket that stays open and says nothing."""
    settings = ClientSettings(urls=(shell.url,), silence_limit_ms=6_000, backoff_first_ms=50)
    async with AsyncClient(settings) as client, client.follow() as follower:
        await until(follower, lambda: follower.complete)
        stopped = asyncio.create_task(shell.service.stop_cont(8))
        await until(follower, lambda: not follower.complete)
        assert not stopped.done()
        await stopped
        await until(follower, lambda: follower.connected_url is not None)


async def test_commands_go_to_an_instance_that_is_up(patient: Shell) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    await patient.register("a")
    code, stdout, _ = await patient.run("pools", "-o", "name", "--discovery", f"{nowhere},{patient.url}")
    assert (code, stdout) == (0, "c/n/a\n")
    code, stdout, stderr = await patient.run("status", "--discovery", f"{nowhere},{patient.url}")
    assert code == 1
    assert os.strerror(errno.ECONNREFUSED) in stderr
    assert len(stdout.splitlines()) == 3


def _pools_of(body: bytes) -> bytes:
    """The member ``pools`` of a list answer, byte for byte."""
    start = body.index(b"[")
    _, end = json.JSONDecoder().raw_decode(body.decode(), start)
    document: Any = json.loads(body)
    assert isinstance(document["pools"], list)
    return body.decode()[start:end].encode()
