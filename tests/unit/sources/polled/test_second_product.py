"""The polled store on a table of another product: two instances on one file, and a file that cannot be used."""

import sqlite3
from pathlib import Path

import pytest

from poolmuster.model.errors import RelayDeregistered, Unavailable
from poolmuster.model.source import SourceReason, SourceState
from tests.support.clock import ManualClock
from tests.support.registrations import deregistration, key, registration
from tests.support.sqlite_table import SqliteTable
from tests.unit.sources.polled.worlds import Recorder, StoreWorld


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pools.sqlite"


async def test_what_one_instance_puts_another_reads_and_what_left_at_one_is_barred_at_the_other(
    clock: ManualClock, path: Path
) -> None:
    tables = SqliteTable(path), SqliteTable(path)
    one, two = (StoreWorld(clock, table, Recorder()) for table in tables)
    async with tables[0].opened(), tables[1].opened():
        await one.store.put(registration("a", "r"))
        await two.read_once()
        assert two.renewed == {key("a")}
        await one.store.deregister(deregistration("a", "r"))
        with pytest.raises(RelayDeregistered):
            await two.store.put(registration("a", "r"))
        await two.store.put(registration("a", "successor"))
        await two.store.deregister(deregistration("a", "r"))
        await one.read_once()
        assert one.renewed == {key("a")}


async def test_errors_of_the_product_have_a_reason_and_heal(clock: ManualClock, path: Path) -> None:
    table = SqliteTable(path)
    world = StoreWorld(clock, table, Recorder())
    async with table.opened():
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match=r"throttled.*locked"):
            await world.store.put(registration("a", "r"))
        await world.read_once()
        assert (world.source.state, world.source.reason) == (SourceState.UNKNOWN, SourceReason.THROTTLED)
        other.close()
        await world.store.put(registration("a", "r"))
        await world.read_once()
    assert world.source.state is SourceState.FRESH
    assert world.recorder.reads == ["throttled", "good"]
    assert world.recorder.writes == ["throttled", "good"]
