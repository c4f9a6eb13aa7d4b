"""Fixtures that every folder of tests may take."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.clock import ManualClock
from tests.support.dynamo import Dynamo
from tests.support.table_server import Table, TableServer, default_server, dynalite


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def dynamo_frontend(tmp_path: Path) -> AsyncIterator[Dynamo]:
    """NVIDIA Dynamo's frontend with one mocker engine that is listed; its test is left out where Dynamo is not here."""
    async with Dynamo.of_this_machine(tmp_path / "dynamo") as dynamo:
        yield dynamo


@pytest.fixture(scope="session")
def table_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableServer]:
    """A DynamoDB: ministack, or what ``DYNAMODB_URL`` names."""
    with default_server(tmp_path_factory.mktemp("table-server")) as server:
        yield server


@pytest.fixture(scope="session")
def dynalite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableServer]:
    """dynalite; tests that want it are left out where it is not here."""
    with dynalite(tmp_path_factory.mktemp("dynalite")) as server:
        yield server


@pytest.fixture
def table(table_server: TableServer) -> Iterator[Table]:
    """A table of the test's own."""
    table = table_server.create()
    yield table
    table.drop()


@pytest.fixture
def dynalite_table(dynalite_server: TableServer) -> Iterator[Table]:
    """A table of the test's own on dynalite."""
    table = dynalite_server.create()
    yield table
    table.drop()
