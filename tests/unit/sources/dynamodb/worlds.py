"""The store on a clock of the test's and calls that follow a script."""

from collections.abc import Callable
from typing import Any

import pytest

from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Pool
from poolmuster.model.source import SourceReason
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.updates import SourceUpdate
from poolmuster.sources.dynamodb.errors import ConditionFailed, StoreError
from poolmuster.sources.dynamodb.instrumentation import TableInstrumentation
from poolmuster.sources.dynamodb.items import Attributes, QueryOutput, live_item
from poolmuster.sources.dynamodb.server_clock import ServerClock
from tests.support.clock import ManualClock
from tests.support.registrations import registration

pytest.importorskip("botocore", reason="botocore is not here: it comes with the extra 'dynamodb'")

from botocore.session import Session

from poolmuster.sources.dynamodb.aws import AwsSigner, TableLocation
from poolmuster.sources.dynamodb.client import DynamoClient
from poolmuster.sources.dynamodb.store import DynamoStore

LEASE_MS = 15_000
PLACE = TableLocation("t", "home", "http://nowhere")


def page_of(items: list[Attributes], last: Attributes | None = None) -> QueryOutput:
    """One page as DynamoDB answers it."""
    return QueryOutput(Items=items, Count=len(items), LastEvaluatedKey=last)


class ScriptedCalls(DynamoClient):
    """Answers at once, from a script; each call may take time on the test's clock."""

    def __init__(self, clock: ManualClock, access: AwsSigner, table_clock: ServerClock) -> None:
        super().__init__(PLACE, access, clock, table_clock, lambda kind, units: None)
        self._test_clock = clock
        self.items: dict[str, Attributes] = {}
        self.pages: list[tuple[int, int, float]] = []
        """Of each page of the list: when it was asked for, how many were under way, and its limit."""
        self.takes_ms = 0
        self.trouble: list[StoreError | None] = []
        self.script: list[QueryOutput] = []
        self.put_trouble: StoreError | None = None
        self.refuse: Callable[[dict[str, Any] | None], bool] = lambda condition: False
        self.puts: list[tuple[Attributes, dict[str, Any] | None, float]] = []
        self.single_limits: list[float] = []
        self._under_way = 0

    async def open(self) -> None:
        pass

    async def page(self, start: Attributes | None, timeout_s: float, *, sort_key: str | None = None) -> QueryOutput:
        if sort_key is not None:
            self.single_limits.append(timeout_s)
            found = self.items.get(sort_key)
            return page_of([found] if found is not None else [])
        self._under_way += 1
        try:
            self.pages.append((self._test_clock.monotonic_ms(), self._under_way, timeout_s))
            trouble = self.trouble.pop(0) if self.trouble else None
            if self.takes_ms:
                await self._test_clock.sleep_ms(self.takes_ms)
            if trouble is not None:
                raise trouble
            return self.script.pop(0) if self.script else page_of(list(self.items.values()))
        finally:
            self._under_way -= 1

    async def put(self, item: Attributes, timeout_s: float, condition: dict[str, Any] | None = None) -> None:
        self.puts.append((item, condition, timeout_s))
        if self.put_trouble is not None:
            raise self.put_trouble
        if self.refuse(condition):
            raise ConditionFailed("no")
        self.items[item["sk"]["S"]] = item


class Notes(TableInstrumentation):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.extra = 0
        self.retries = 0

    def read(self, outcome: str, duration_ms: int) -> None:
        self.reads.append(outcome)

    def retried(self, reason: str) -> None:
        self.retries += 1

    def extra_read(self) -> None:
        self.extra += 1


class World:
    """The store, running, and all that it sends (`poolmuster.ports.source.Sink`)."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.readings: list[SourceUpdate[PoolKey, Pool]] = []
        self.troubled = 0
        table_clock = ServerClock()
        self.access = AwsSigner(Session(), PLACE)
        self.calls = ScriptedCalls(clock, self.access, table_clock)
        self.notes = Notes()
        self.store = DynamoStore(
            calls=self.calls,
            access=self.access,
            clock=clock,
            table_clock=table_clock,
            boot_id="boot",
            policy=LeasePolicy(LEASE_MS, 5_000),
            notes=self.notes,
        )

    async def apply(self, update: SourceUpdate[PoolKey, Pool]) -> None:
        self.readings.append(update)

    def statuses_changed(self) -> None:
        self.troubled += 1

    async def read_once(self) -> None:
        await self.store.read_once(self)

    @property
    def starts_ms(self) -> list[int]:
        return [at_ms for at_ms, _, _ in self.calls.pages]

    @property
    def source(self) -> SourceStatus:
        return self.store.statuses(self.clock.monotonic_ms())[0]

    def has(self, name: str = "a", **facts: Any) -> None:
        """Put a live item into the table, as somebody else would."""
        item = live_item(
            registration(name, "r", **facts),
            ends_ms=self.clock.wall_ms() + LEASE_MS,
            lease_ms=LEASE_MS,
            writer="home/other",
        )
        self.calls.items[item["sk"]["S"]] = item


def trouble(reason: SourceReason = SourceReason.UNREACHABLE) -> StoreError:
    return StoreError(reason, f"it is {reason}")
