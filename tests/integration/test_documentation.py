"""What README and the client's page print, run as printed: the tour's commands and the examples in Python."""

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.process import Program, poolmuster

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/client.md")
PATIENCE_S = 20.0
SERVICE_HOSTS = re.compile(r"(discovery-a|discovery-b|127\.0\.0\.1):8080")
RUNS_ON = re.compile(r"&$|poolmuster serve$|pools -w$|curl -sN ")


def blocks(page: str, language: str) -> Iterator[str]:
    """The fenced blocks of one language."""
    for match in re.finditer(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        yield match[1]


def tour() -> list[str]:
    """The commands of README's tour, one a line, without their remarks."""
    _, _, text = (ROOT / "README.md").read_text().partition("## The tour")
    text, _, _ = text.partition("\n## ")
    shown = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    return [line.removeprefix("$ ").partition(" #")[0].strip() for line in shown.splitlines()]


class Tour:
    """Runs commands as a reader would, but on ports that are free."""

    def __init__(self, folder: Path, programs: AsyncExitStack) -> None:
        self.folder = folder
        self._programs = programs
        self._service, self._model, self._relay = free_ports(3)

    def _program(self, command: str) -> Program:
        command = command.replace(":8080", f":{self._service}").replace("9000", str(self._model)).rstrip(" &")
        words = shlex.split(command)
        listen = self._relay if "relay" in words else self._service
        env = {"POOLMUSTER_DISCOVERY": f"http://127.0.0.1:{self._service}"}
        if "serve" in words or "relay" in words:
            env["POOLMUSTER_LISTEN"] = f"127.0.0.1:{listen}"
        if words[0] == ".venv/bin/poolmuster":
            return poolmuster(*words[1:], folder=self.folder, env=env)
        if words[0] == ".venv/bin/python":
            words[0] = sys.executable
        return Program(*words, folder=self.folder, env=env)

    async def run(self, command: str) -> None:
        """Start what runs on; what ends must come to end well, if not at once."""
        if RUNS_ON.search(command):
            await self._programs.enter_async_context(self._program(command))
            return
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with self._program(command) as program:
                    code = await program.wait(PATIENCE_S)
                if code == 0:
                    return
                await asyncio.sleep(0.1)


@pytest.fixture
async def programs() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def test_the_tours_commands_work_as_printed(tmp_path: Path, programs: AsyncExitStack) -> None:
    commands = tour()
    assert len(commands) >= 8
    walk = Tour(tmp_path, programs)
    for command in commands:
        await walk.run(command)


@pytest.mark.parametrize(
    ("page", "code"), [(page, code) for page in PAGES for code in blocks(page, "python")], ids=lambda text: text[:9]
)
async def test_the_examples_in_python_run_as_printed(page: str, code: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    async with (
        poolmuster("serve", "--listen", f"127.0.0.1:{port}", folder=tmp_path, ready_url=f"{url}/health/live"),
        Program(
            *(sys.executable, "-u", "-c", SERVICE_HOSTS.sub(f"127.0.0.1:{port}", code)),
            folder=tmp_path,
            name="example",
        ) as example,
    ):
        # Each ends by following the list for ever. Where the list was there first, updates begin with an overrun.
        await example.wait_line(r"(?m)^(snapshot|overrun) ", timeout_s=PATIENCE_S)
        assert (example.returncode, example.stderr) == (None, "")
