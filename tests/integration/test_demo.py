"""The demo: what it prints works, and nothing outlives it."""

import asyncio
import contextlib
import os
import pty
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.process import Program, poolmuster

pytestmark = pytest.mark.integration

BEGUN = r"^snapshot "
# A pool that registers before the watch begins is in the snapshot, and any other is added to it.
BOTH_LISTED = r"(?s)^(?:listed|added) .*^(?:listed|added) "


def pids_of(program: Program) -> list[int]:
    """The demo's children, as it printed them."""
    pids = [int(found) for found in re.findall(r"pid (\d+)", program.stdout.partition("To try")[0])]
    assert len(pids) == 5
    return pids


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def all_gone(pids: list[int], timeout_s: float = 3.0) -> None:
    async with asyncio.timeout(timeout_s):
        while any(map(alive, pids)):
            await asyncio.sleep(0.02)


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Program]:
    async with poolmuster("demo", folder=tmp_path, ready_line=BEGUN) as program:
        yield program


async def test_it_ends_by_itself_after_the_given_time(tmp_path: Path) -> None:
    started_s = time.monotonic()
    async with poolmuster("demo", "--for", "3", folder=tmp_path) as program:
        assert await program.wait(timeout_s=30) == 0
    assert time.monotonic() - started_s > 3
    assert program.stderr == ""
    assert re.search(
        r"(?s)^(?:listed|added) .*^removed .*relay_stopping.*^All that was started has ended.$",
        program.stdout,
        re.MULTILINE,
    )
    await all_gone(pids_of(program), 0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_ends_cleanly_when_told_to(demo: Program, number: int) -> None:
    await demo.wait_line(BOTH_LISTED)
    demo.send_signal(number)
    assert await demo.wait() == 0
    assert "Traceback" not in demo.stdout + demo.stderr
    await all_gone(pids_of(demo), 0.1)


async def test_told_to_end_before_it_has_begun_it_leaves_nothing(tmp_path: Path) -> None:
    async with poolmuster("demo", folder=tmp_path) as program:
        await asyncio.sleep(0.6)
        code = await program.interrupt()
        assert code in (0, 130)
        assert "Traceback" not in program.stderr


async def test_its_children_do_not_outlive_even_a_kill(demo: Program) -> None:
    pids = pids_of(demo)
    assert all(map(alive, pids))
    await demo.kill()
    await all_gone(pids)


async def test_what_it_suggests_works_as_printed(demo: Program, tmp_path: Path) -> None:
    await demo.wait_line(BOTH_LISTED)
    suggested = {
        what: line
        for what, line in re.findall(r"^  # (.*)\n  (.*)$", demo.stdout, re.MULTILINE)
        if " -w " not in line and not line.startswith("kill")
    }
    assert len(suggested) == 4
    for what, line in suggested.items():
        shell = await asyncio.create_subprocess_shell(
            line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await asyncio.wait_for(shell.communicate(), 20)
        assert shell.returncode == 0, (what, line, output)
        assert b"llama" in output or b"qwen" in output, (what, output)


async def test_a_relay_that_is_killed_is_told_and_its_pool_expires_and_comes_back(demo: Program) -> None:
    await demo.wait_line(BOTH_LISTED)
    kill = re.search(r"^  (kill -9 \d+)$", demo.stdout, re.MULTILINE)
    assert kill is not None
    await (await asyncio.create_subprocess_shell(kill[1])).wait()
    await demo.wait_line(r"^died      relay of llama-70b \(pid \d+\) was ended by SIGKILL$", timeout_s=2)
    again = await demo.wait_line(r"^          to start it again: (.*)$", timeout_s=2)
    await demo.wait_line(r"^removed   us-east-1-demo/demo/llama-70b  expired$", timeout_s=17)
    relay = await asyncio.create_subprocess_exec("sh", "-c", f"exec {again[1]}", stderr=asyncio.subprocess.DEVNULL)
    try:
        await demo.wait_line(r"(?s)^removed .*^added     us-east-1-demo/demo/llama-70b", timeout_s=10)
    finally:
        relay.terminate()
        await relay.wait()
    assert await demo.interrupt() == 0


@contextlib.contextmanager
def taken(port: int) -> Iterator[None]:
    """Something else listens on ``port``, as far as it is free."""
    with socket.socket() as other:
        # Without this the port would count as taken while connections of the last test's server fade, and then not be.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            other.bind(("127.0.0.1", port))
            other.listen()
        yield


async def test_it_takes_other_ports_where_the_usual_ones_are_taken(tmp_path: Path) -> None:
    with taken(8080), taken(8081), taken(8001):
        async with poolmuster("demo", folder=tmp_path, ready_line=BEGUN) as program:
            await program.wait_line(BOTH_LISTED)
            assert not re.search(r":(8080|8081|8001)\b", program.stdout)


async def test_variables_that_are_flags_do_not_reach_its_programs(tmp_path: Path) -> None:
    env = {
        "POOLMUSTER_LISTEN": "127.0.0.1:1",
        "POOLMUSTER_LEASE_DURATION_SECS": "1",
        "POOLMUSTER_DISCOVERY": "http://x",
    }
    async with poolmuster("demo", folder=tmp_path, env=env, ready_line=BEGUN) as program:
        await program.wait_line(BOTH_LISTED)


async def test_on_a_terminal_the_list_is_redrawn_and_ctrl_c_ends_it() -> None:
    """The keys are pressed on a real terminal, so Ctrl-C goes to the whole foreground process group."""
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover
        os.environ |= {"TERM": "xterm", "COLUMNS": "120", "LINES": "50"}
        os.execv(sys.executable, [sys.executable, "-m", "poolmuster", "demo"])  # noqa: S606  # there is no shell to want
    seen = b""
    try:
        async with asyncio.timeout(30):
            while seen.count(b"Llama-3.3") < 4 or b"complete in" not in seen:
                seen += await asyncio.to_thread(os.read, terminal, 65536)
            os.write(terminal, b"\x03")
            while b"All that was started has ended." not in seen:
                seen += await asyncio.to_thread(os.read, terminal, 65536)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, pid, 0)
        raise
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"Traceback" not in seen
