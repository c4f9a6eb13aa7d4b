"""Watchers that come and go leave nothing behind: no memory, no open file."""

import os
from pathlib import Path

import pytest

from tests.support.crowd import Crowd
from tests.support.ports import free_port
from tests.support.process import Program, poolmuster
from tests.support.variables import variable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(0)]

CONNECTS = 50_000 if variable("SOAK_S") else 3000
AT_ONCE = 100
GROWTH_BYTES = 8 * 1024 * 1024
"""What memory may grow by: pages that the allocator keeps. 50,000 watchers that stayed would hold 700 MB."""


def resident_bytes(program: Program) -> int:
    fields = Path(f"/proc/{program.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/fd").iterdir()))


async def come_and_go(port: int, count: int) -> None:
    for _ in range(count // AT_ONCE):
        async with Crowd(port, AT_ONCE):
            pass


@pytest.mark.soak
async def test_watchers_that_come_and_go_leave_memory_and_files_as_they_were(tmp_path: Path) -> None:
    """``POOLMUSTER_SOAK_S`` makes it 50,000 of them."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = ("serve", "--listen", f"127.0.0.1:{port}")
    async with poolmuster(*serve, folder=tmp_path, ready_url=f"{url}/health/ready") as program:
        await come_and_go(port, CONNECTS // 3)
        async with Crowd(port, 1):  # answered after everyone before has left
            files, memory_bytes = open_files(program), resident_bytes(program)
        await come_and_go(port, CONNECTS)
        async with Crowd(port, 1):
            assert open_files(program) <= files
            assert resident_bytes(program) - memory_bytes < GROWTH_BYTES
