"""A stopping service says goodbye to every watcher. With 2,000 of them: ``python -m bench churn``."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.crowd import Crowd
from tests.support.ports import free_port
from tests.support.process import poolmuster

pytestmark = pytest.mark.integration

WATCHERS = 300
OUT_WITHIN_S = 5.0


async def test_sigterm_is_told_to_every_watcher_and_the_process_is_out_in_time(tmp_path: Path) -> None:
    """The last event of each stream is ``closing`` with the reason ``shutdown``."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = ("serve", "--listen", f"127.0.0.1:{port}")
    async with (
        poolmuster(*serve, folder=tmp_path, ready_url=f"{url}/health/ready") as program,
        Crowd(port, WATCHERS) as crowd,
    ):
        began_s = time.monotonic()
        rests = [asyncio.create_task(watch.rest()) for watch in crowd.watches]
        assert await program.terminate() == 0
        assert time.monotonic() - began_s < OUT_WITHIN_S
        for events in await asyncio.gather(*rests):
            assert events[-1]["type"] == "closing"
            assert events[-1]["reason"] == "shutdown"
