"""A store under contract: with the catalog that it sends to and a clock that the test moves."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from poolmuster.model.change import DeregistrationReason
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.source import SourceInfo
from poolmuster.ports.clock import Clock, LeaseClock
from poolmuster.ports.store import RegistrationStore
from poolmuster.registry.table_scan import EXPECTED_GAP_MS
from poolmuster.sources.memory import MemoryStore
from poolmuster.sources.peers.node import PeerSettings
from poolmuster.sources.peers.store import PeerStore
from tests.support.catalog import POLICY, CatalogWorld
from tests.support.clock import ManualClock
from tests.support.peer_network import NAME, FakeNetwork, Net
from tests.support.registrations import deregistration, key, registration
from tests.support.sqlite_table import SqliteTable
from tests.support.table_server import Table
from tests.support.table_world import MakeTable, ReadBackStore, ReadingClock, dynamo_table

LEASE_MS, HEARTBEAT_MS = POLICY.duration_ms, POLICY.heartbeat_ms
MakeStore = Callable[[Clock, LeaseClock, LeasePolicy], RegistrationStore]


def lonely_peer_store(clock: Clock, lease_clock: LeaseClock, policy: LeasePolicy) -> RegistrationStore:
    """The store of an instance that has peers, of which none is there."""
    assert isinstance(clock, ManualClock)
    return PeerStore(
        transport=FakeNetwork(Net(clock), ""),
        clock=clock,
        lease_clock=lease_clock,
        boot_id="boot",
        settings=PeerSettings(names=(NAME,), policy=policy),
    )


STORES: dict[str, MakeStore] = {"memory": MemoryStore, "peers": lonely_peer_store}
"""Each store that needs nothing outside this process, made from its clocks and the lease policy."""

TABLES = {"dynamodb": "dynamodb_table", "dynamodb-on-dynalite": "dynalite_dynamodb_table", "sqlite": "sqlite_table"}
"""Each table on which the polled store must keep the contract, by the fixture that gives a maker of one."""

EVERY_STORE = (*sorted(STORES), *TABLES)
"""Each store that must keep the contract."""


class World(CatalogWorld[RegistrationStore]):
    """One store, its catalog and its time."""

    clock: ManualClock

    def __init__(self, make_store: MakeStore, clock: ManualClock | None = None) -> None:
        super().__init__(clock or ManualClock(), make_store)
        self.uncredited_ms = 0
        """How much of a pause counts against a lease all the same."""

    async def __aenter__(self) -> Self:
        self.start()
        await self.clock.settle()
        return self

    async def put(self, name: str = "a", relay_id: str | None = "r", **facts: Any) -> None:
        """Register, and let it be read."""
        await self.store.put(registration(name, relay_id, **facts))
        await self.clock.settle()

    async def leave(
        self, name: str = "a", relay_id: str | None = None, reason: DeregistrationReason | None = None
    ) -> None:
        """Deregister, and let it be read."""
        await self.store.deregister(deregistration(name, relay_id, reason))
        await self.clock.settle()

    async def keep_alive(self, *names: str, for_ms: int, relay_id: str = "r") -> None:
        """Let time pass with a heartbeat of each pool every interval."""
        for _ in range(for_ms // HEARTBEAT_MS):
            for name in names:
                await self.put(name, relay_id)
            await self.clock.advance(HEARTBEAT_MS)

    @property
    def told(self) -> list[str]:
        """What watchers were told, in short: ``added a``, ``completeness``."""
        return [f"{each.kind} {each.record.key.dgd_name}" if each.record else str(each.kind) for each in self.changes]

    def complete(self) -> bool:
        """Whether the list is complete, if somebody asks right now."""
        return self.catalog.completeness().complete

    @property
    def source(self) -> SourceInfo:
        """What is in memory here. Whatever else there is, is fresh."""
        source, *others = self.catalog.completeness().sources
        assert not [other for other in others if other.reason is not None]
        return source

    def lease_ends_in_ms(self, name: str = "a") -> int:
        """What is left of a pool's lease."""
        lease = self.catalog.lease(key(name))
        assert lease is not None
        return lease.ends_at_ms - self.clock.wall_ms()


@pytest.fixture
def dynamodb_table(table: Table) -> MakeTable:
    return partial(dynamo_table, table)


@pytest.fixture
def dynalite_dynamodb_table(dynalite_table: Table) -> MakeTable:
    return partial(dynamo_table, dynalite_table)


@pytest.fixture
def sqlite_table(tmp_path: Path) -> MakeTable:
    return lambda _: SqliteTable(tmp_path / "pools.sqlite")


@pytest.fixture(params=EVERY_STORE)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    store: str = request.param
    if store in STORES:
        async with World(STORES[store]) as world:
            world.changes.clear()
            yield world
        return
    make_table: MakeTable = request.getfixturevalue(TABLES[store])
    world = World(partial(ReadBackStore, make_table), ReadingClock())
    # Of a pause the table's readers count three seconds as a read that is late.
    world.uncredited_ms = EXPECTED_GAP_MS
    async with world:
        # The first good read makes the list complete, which says nothing about what a test does.
        world.changes.clear()
        yield world
