"""A polled store on a clock that the test moves, and on a real table: its calls take no time that counts."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Registration
from poolmuster.ports.clock import Clock, LeaseClock
from poolmuster.ports.source import Sink
from poolmuster.ports.store import Expiry
from poolmuster.registry.source_status import SourceStatus
from poolmuster.sources.polled.instrumentation import TableInstrumentation
from poolmuster.sources.polled.server_clock import ServerClock
from poolmuster.sources.polled.store import PolledStore
from poolmuster.sources.polled.table import Table
from tests.support.clock import ManualClock
from tests.support.table_server import Table as ServerTable

READ_EVERY_MS = 1_000
MakeTable = Callable[[Clock], Table]


class DeafClock(ServerClock):
    """A table's clock that goes by the test's clock: a real server's answers bear real time."""

    def observe(self, date: str | None, monotonic_ms: int) -> None:
        pass


def dynamo_table(table: ServerTable, clock: Clock) -> Table:
    """``table`` of a real server, as the store has it."""
    # Late: the tests of what needs no extra run without botocore.
    from botocore.session import Session

    from poolmuster.sources.dynamodb.aws import AwsSigner, TableLocation
    from poolmuster.sources.dynamodb.client import DynamoClient
    from poolmuster.sources.dynamodb.table import DynamoTable

    location = TableLocation(table.name, None, table.server.url)
    signer = AwsSigner(Session(), location)
    client = DynamoClient(location, signer, clock, DeafClock(), lambda kind, units: None)
    return DynamoTable(client, clock, TableInstrumentation())


class ReadBackStore:
    """A polled store, read once a second of the test's clock and after each of its writes."""

    expiry = Expiry.ON_UPDATE

    def __init__(self, make_table: MakeTable, clock: Clock, lease_clock: LeaseClock, policy: LeasePolicy) -> None:
        self.table = make_table(clock)
        self.store = PolledStore(
            table=self.table, clock=clock, boot_id="boot", policy=policy, instrumentation=TableInstrumentation()
        )
        self._clock = clock
        self._reading = asyncio.Lock()
        self._sink: Sink | None = None

    async def put(self, registration: Registration) -> None:
        await self.store.put(registration)
        await self.read()

    async def deregister(self, deregistration: PoolDeregistration) -> None:
        await self.store.deregister(deregistration)
        await self.read()

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        return self.store.statuses(now_ms)

    async def read(self) -> None:
        """Read the table now, after whichever read is under way."""
        assert self._sink is not None, "it is run before it is read"
        async with self._reading:
            await self.store.read_once(self._sink)

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        clock = self._clock
        assert isinstance(clock, ReadingClock)
        async with contextlib.AsyncExitStack() as stack:
            with clock.busy():
                await stack.enter_async_context(self.table.opened())
            clock.reads = self.read
            while True:
                with clock.busy():
                    await self.read()
                await clock.sleep_ms(READ_EVERY_MS)


class ReadingClock(ManualClock):
    """A clock that stands still while calls are under way, and lets the table be read whenever it has been moved."""

    def __init__(self) -> None:
        super().__init__()
        self._busy = 0
        self.reads: Callable[[], Awaitable[None]] | None = None

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Within this, time must not move."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    async def settle(self, turns: int = 20) -> None:
        await super().settle(turns)
        while self._busy:
            await asyncio.sleep(0.001)
        await super().settle(turns)

    async def advance(self, by_ms: int) -> None:
        await super().advance(by_ms)
        if self.reads is not None:
            await self.reads()
        await self.settle()
