"""Fixtures that every folder of tests may take."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.clock import ManualClock
from tests.support.dynamo import Dynamo


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def dynamo_frontend(tmp_path: Path) -> AsyncIterator[Dynamo]:
    """NVIDIA Dynamo's frontend with one mocker engine that is listed; its test is left out where Dynamo is not here."""
    async with Dynamo.of_this_machine(tmp_path / "dynamo") as dynamo:
        yield dynamo
