"""A relay beside a real NVIDIA Dynamo frontend: the pool lives exactly while an engine serves."""

from pathlib import Path

import pytest

from tests.support.dynamo import MODEL, Dynamo
from tests.support.ports import free_port
from tests.support.process import poolmuster
from tests.support.watching import watching

pytestmark = [pytest.mark.integration, pytest.mark.dynamo]


async def test_the_pool_goes_with_the_engine_and_comes_back_with_it(tmp_path: Path, dynamo_frontend: Dynamo) -> None:
    port, relay_port = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    service = poolmuster("serve", "--listen", f"127.0.0.1:{port}", folder=tmp_path, ready_url=f"{url}/health/live")
    relay = poolmuster(
        "relay",
        *("--frontend", dynamo_frontend.url, "--discovery", url, "--cluster-id", "c", "--name", "dynamo"),
        *("--listen", f"127.0.0.1:{relay_port}"),
        folder=tmp_path,
    )
    async with service, watching(url) as watcher, relay:
        told = await watcher.wait_type("added")
        assert [model["id"] for model in told.event["pool"]["models"]] == [MODEL]
        assert told.event["pool"]["models"][0].get("context_window", 1) > 0
        await dynamo_frontend.stop_engine()
        told = await watcher.wait_type("removed", timeout_s=10)
        assert (told.event["cause"], told.event["reason"]) == ("deregistered", "no_models")
        seen = len(watcher.told)
        await dynamo_frontend.start_engine()
        told = await watcher.wait_type("added", timeout_s=10, since=seen)
        assert [model["id"] for model in told.event["pool"]["models"]] == [MODEL]
        assert watcher.movements == ["added", "removed", "added"]
