"""Instances that share a table, as processes on a real server, in one region and in two."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.instances import HEARTBEAT_S, LEASE_S, Server, eventually, instance, renewing
from tests.support.model_server import model_server
from tests.support.ports import free_port
from tests.support.process import poolmuster
from tests.support.table_server import Table, TableServer
from tests.support.watching import watching

pytestmark = pytest.mark.integration

READ_S = 1.2
MARGIN = 3.0
"""On real parts each bound is held three times over: a machine under load is slow."""


@pytest.fixture
async def one(tmp_path: Path, table: Table) -> AsyncIterator[Server]:
    async with instance(tmp_path / "one", table.name, table.server.url) as server:
        await eventually(lambda: complete(server))
        yield server


@pytest.fixture
async def two(tmp_path: Path, table: Table) -> AsyncIterator[Server]:
    async with instance(tmp_path / "two", table.name, table.server.url) as server:
        await eventually(lambda: complete(server))
        yield server


async def complete(server: Server) -> bool:
    return (await server.pools())[1]


async def lists(server: Server, *names: str) -> bool:
    return await server.pools() == (list(names), True)


async def test_d1_what_is_registered_at_one_is_listed_complete_at_the_other_and_by_one_that_starts(
    tmp_path: Path, table: Table, one: Server, two: Server
) -> None:
    async with renewing(one, "a", "b"):
        assert await eventually(lambda: lists(two, "a", "b")) < READ_S * MARGIN
        assert await lists(one, "a", "b")
        bodies = [(await server.get())[1]["pools"] for server in (one, two)]
        assert bodies[0] == bodies[1]
        await two.program.kill()
        await two.program.start()
        first = await eventually(lambda: _has_a_list(two))
        assert await two.pools() == (["a", "b"], True), "its first answer holds every live pool, and says so"
        assert first < READ_S * MARGIN


async def _has_a_list(server: Server) -> bool:
    return (await server.get())[0] == 200


async def test_d2_leaving_at_one_is_seen_at_the_other_and_a_dead_relays_pool_ends_at_both(
    one: Server, two: Server
) -> None:
    async with watching(one.url) as at_one, watching(two.url) as at_two:
        await one.register("a")
        await eventually(lambda: lists(two, "a"))
        assert await one.leave("a", "?relay_id=r&reason=relay_stopping") == 204
        told = await at_two.wait_type("removed")
        assert (told.event["cause"], told.event["reason"]) == ("deregistered", "relay_stopping")
        await two.register("dead", relay_id="k")
        started_s = time.monotonic()
        for watcher in (at_one, at_two):
            gone = await watcher.wait(lambda each: each.type == "removed" and each.event["key"]["dgd_name"] == "dead")
            assert gone.event["cause"] == "expired"
        assert LEASE_S - 0.1 <= time.monotonic() - started_s <= LEASE_S + READ_S * MARGIN


async def test_d2_a_relay_that_is_killed_is_gone_at_both_after_one_lease_and_watchers_are_told(
    tmp_path: Path, one: Server, two: Server
) -> None:
    async with model_server(tmp_path) as models, watching(one.url) as at_one, watching(two.url) as at_two:
        relay = poolmuster(
            "relay",
            *("--frontend", models.url, "--discovery", f"{one.url},{two.url}", "--listen", f"127.0.0.1:{free_port()}"),
            *("--cluster-id", "c", "--namespace", "n", "--name", "a"),
            folder=tmp_path,
        )
        async with relay:
            await eventually(lambda: lists(two, "a"), LEASE_S * MARGIN)
            await asyncio.sleep(LEASE_S + READ_S)
            assert await lists(one, "a")
            await relay.kill()
            started_s = time.monotonic()
            for watcher in (at_one, at_two):
                assert (await watcher.wait_type("removed")).event["cause"] == "expired"
                assert watcher.movements == ["added", "removed"]
            assert LEASE_S - HEARTBEAT_S - 1 <= time.monotonic() - started_s <= LEASE_S + READ_S * MARGIN
        assert await lists(one)
        assert await lists(two)


async def test_d2_a_lease_of_two_seconds_works(tmp_path: Path, table: Table) -> None:
    async with instance(tmp_path, table.name, table.server.url, lease_s=2, heartbeat_s=0.5) as server:
        await eventually(lambda: complete(server))
        async with watching(server.url) as watcher:
            async with renewing(server, "a", every_s=0.5):
                await watcher.wait_type("added")
                await asyncio.sleep(6)
                assert watcher.movements == ["added"]
            started_s = time.monotonic()
            await watcher.wait_type("removed")
            assert time.monotonic() - started_s <= 2 + READ_S * MARGIN


async def test_d9_a_relay_that_left_cannot_come_back_by_a_late_heartbeat_and_its_successor_can(
    one: Server, two: Server
) -> None:
    assert (await one.register("a", "old"))[0] == 201
    assert await one.leave("a", "?relay_id=old&reason=relay_stopping") == 204
    for server in (one, two):
        status, _ = await server.register("a", "old")
        assert status == 409
    await eventually(lambda: lists(two))
    assert (await two.register("a", "new"))[0] == 201
    await eventually(lambda: lists(one, "a"))
    assert await one.leave("a", "?relay_id=old") == 204
    await asyncio.sleep(READ_S)
    assert await lists(one, "a"), "who is no longer the latest takes nothing away"


async def test_d9_two_relays_on_one_key_are_a_conflict_that_every_instance_shows(one: Server, two: Server) -> None:
    async def in_conflict(server: Server) -> bool:
        status, found = await server.get("/pools/c/n/a")
        return status == 200 and set((found.get("conflict") or {}).get("relay_ids", ())) == {"A", "B"}

    for turn in range(4):
        server, relay_id = ((one, "A"), (two, "B"))[turn % 2]
        await server.register("a", relay_id)
        await asyncio.sleep(1.3)  # longer than a read, so that each turn is seen
    for server in (one, two):
        assert await in_conflict(server)


async def test_a_relays_heartbeats_cost_no_event_and_no_extra_read(one: Server) -> None:
    async with watching(one.url) as watcher, renewing(one, "a", every_s=0.3):
        await watcher.wait_type("added")
        extra = await one.metric("poolmuster_table_extra_reads_total")
        await asyncio.sleep(3)
        assert watcher.movements == ["added"]
        assert await one.metric("poolmuster_table_extra_reads_total") == extra


# Two tables that a replicator keeps alike, as a Global Table in two regions.


class Replicator:
    """Copies what changed in either table to the other, the later write winning, unless it is told to stall."""

    def __init__(self, near: Table, far: Table) -> None:
        self.tables = (near, far)
        self.stalled = False
        self._known: dict[str, dict[str, object]] = {}

    async def run(self) -> None:
        while True:
            if not self.stalled:
                await asyncio.to_thread(self._copy)
            await asyncio.sleep(0.1)

    def _copy(self) -> None:
        for source, target in (self.tables, self.tables[::-1]):
            for item in source.items():
                name = item["sk"]["S"]
                if self._known.get(name) != item:
                    self._known[name] = item
                    target.put(item)


@contextlib.asynccontextmanager
async def replicated(near: Table, far: Table) -> AsyncIterator[Replicator]:
    replicator = Replicator(near, far)
    task = asyncio.create_task(replicator.run())
    try:
        yield replicator
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_d10_a_replication_that_stalls_is_a_stale_region_and_heals(
    tmp_path: Path, table_server: TableServer
) -> None:
    near_table, far_table = table_server.create("near-1"), table_server.create("far-1")
    url = table_server.url
    async with (
        replicated(near_table, far_table) as replicator,
        instance(tmp_path / "near", near_table.name, url, region="near-1") as near,
        instance(tmp_path / "far", far_table.name, url, region="far-1") as far,
    ):
        async with renewing(near, "n"), renewing(far, "f"):
            for server in (near, far):
                await eventually(lambda server=server: lists(server, "f", "n"))  # type: ignore[misc]
            replicator.stalled = True
            await eventually(lambda: _stale_region(near, "region:far-1"), LEASE_S * MARGIN)
            assert await near.pools() == (["n"], False), "what ended has ended, but the list is not called complete"
            await eventually(lambda: _stale_region(far, "region:near-1"), LEASE_S * MARGIN)
            replicator.stalled = False
            for server in (near, far):
                await eventually(lambda server=server: lists(server, "f", "n"), LEASE_S * MARGIN)  # type: ignore[misc]
        assert await far.leave("f") == 204
        assert await near.leave("n") == 204
        await asyncio.sleep(LEASE_S + HEARTBEAT_S)
        assert await lists(near), "a region that deregistered all it had is not waited for"
        await far.register("crashed")
        await eventually(lambda: _stale_region(near, "region:far-1"), LEASE_S * MARGIN)
        assert await near.leave("crashed") == 204
        await eventually(lambda: lists(near))
    near_table.drop()
    far_table.drop()


async def _stale_region(server: Server, name: str) -> bool:
    source = (await server.sources()).get(name)
    return source is not None and (source["kind"], source["state"], source["reason"]) == (
        "region",
        "stale",
        "replication",
    )
