"""Reads leave memory as it was. ``POOLMUSTER_READS`` says how many; `make soak` takes 100,000."""

import gc
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from poolmuster.model.change import DeregistrationReason
from tests.support.catalog import CatalogWorld
from tests.support.registrations import deregistration, registration
from tests.support.table_server import Table, live_attributes
from tests.support.table_world import ReadBackStore, ReadingClock, dynamo_table
from tests.support.variables import variable

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(0)]

READS = int(variable("READS", "600"))
LEASE_MS, HEARTBEAT_MS, READ_MS = 15_000, 5_000, 1_000
STEADY = 20
GROWTH_BLOCKS = 500
"""What the interpreter's own caches may still take, whatever the number of reads."""

GROWTH_BYTES = 8 * 1024 * 1024
"""What memory may grow by: pages that the allocator keeps."""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held() -> tuple[int, int]:
    """Blocks of memory that Python objects hold, and what the process holds, in bytes."""
    gc.collect()
    return sys.getallocatedblocks(), resident_bytes()


class Life:
    """A table in use: pools that renew, one that comes and goes, one that dies, an item that cannot be read."""

    def __init__(self, table: Table) -> None:
        self.clock = ReadingClock()
        self.world = CatalogWorld(self.clock, partial(ReadBackStore, partial(dynamo_table, table)), history_changes=20)
        self.store, self.catalog = self.world.store, self.world.catalog
        broken = live_attributes(registration("broken"), ends_ms=1, lease_ms=1, writer="-/b")
        table.put(broken | {"registration": {"S": "{"}})
        self._reads = 0

    async def read(self, times: int) -> None:
        """So many reads, a second of the test's time apart."""
        for _ in range(times):
            await self._write(self._reads % 60)
            self._reads += 1
            await self.clock.advance(READ_MS)
            self.world.changes.clear()  # the test world keeps what the change log does not

    async def _write(self, second: int) -> None:
        put = self.store.store.put
        if second % (HEARTBEAT_MS // READ_MS) == 0:
            for number in range(STEADY):
                await put(registration(f"p{number}", "r", weight=1 + second // 30))
        if second == 10:
            await put(registration("goes", f"r{self._reads}"))
            await put(registration("dies", "r"))
        if second == 20:
            await self.store.store.deregister(
                deregistration("goes", f"r{self._reads - 10}", DeregistrationReason.OPERATOR)
            )


async def test_d8_reads_leave_memory_as_it_was(table: Table) -> None:
    life = Life(table)
    life.world.start()
    await life.clock.settle()
    await life.read(max(120, READS // 10))
    blocks, resident = held()
    await life.read(READS)
    more_blocks, more_resident = held()
    await life.world.stop()
    print(f"{READS} reads: {more_blocks - blocks} blocks and {more_resident - resident} bytes more")
    assert {f"p{number}" for number in range(STEADY)} <= {pool.key.dgd_name for pool in life.catalog.pools}
    assert more_blocks - blocks < GROWTH_BLOCKS
    assert more_resident - resident < GROWTH_BYTES
