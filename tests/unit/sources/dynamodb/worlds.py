"""A polled store on the DynamoDB table, on a clock of the test's and calls that follow a script."""

from collections.abc import Callable
from typing import Any

import pytest

from poolmuster.sources.dynamodb.errors import ConditionFailed
from poolmuster.sources.dynamodb.items import Attributes, QueryOutput, attributes_of
from poolmuster.sources.polled.server_clock import ServerClock
from poolmuster.sources.polled.table import POOL, StoreError
from tests.support.clock import ManualClock
from tests.unit.sources.polled.worlds import Recorder, StoreWorld

pytest.importorskip("botocore", reason="botocore is not here: it comes with the extra 'dynamodb'")

from botocore.session import Session

from poolmuster.sources.dynamodb.aws import AwsSigner, TableLocation
from poolmuster.sources.dynamodb.client import DynamoClient
from poolmuster.sources.dynamodb.table import DynamoTable

LOCATION = TableLocation("t", "home", "http://nowhere")


def page_of(items: list[Attributes], last: Attributes | None = None) -> QueryOutput:
    """One page as DynamoDB answers it."""
    return QueryOutput(Items=items, Count=len(items), LastEvaluatedKey=last)


class ScriptedClient(DynamoClient):
    """Answers at once, from a script; each page may take time on the test's clock."""

    def __init__(self, clock: ManualClock, signer: AwsSigner) -> None:
        super().__init__(LOCATION, signer, clock, ServerClock(), lambda kind, units: None)
        self._test_clock = clock
        self.items: dict[str, Attributes] = {}
        self.pages: list[tuple[str, Attributes | None, float]] = []
        """Of each page of a scan: its partition, where it began, and its limit."""
        self.takes_ms = 0
        self.errors: list[StoreError | None] = []
        self.script: list[QueryOutput] = []
        self.refuse: Callable[[dict[str, Any] | None], bool] = lambda condition: False
        self.puts: list[tuple[Attributes, dict[str, Any] | None, float]] = []

    async def page(
        self, start: Attributes | None, timeout_s: float, *, partition: str = POOL, sort_key: str | None = None
    ) -> QueryOutput:
        if sort_key is not None:
            found = self.items.get(sort_key)
            return page_of([found] if found is not None else [])
        self.pages.append((partition, start, timeout_s))
        error = self.errors.pop(0) if self.errors else None
        if self.takes_ms:
            await self._test_clock.sleep_ms(self.takes_ms)
        if error is not None:
            raise error
        return self.script.pop(0) if self.script else page_of(list(self.items.values()))

    async def put(self, item: Attributes, timeout_s: float, condition: dict[str, Any] | None = None) -> None:
        self.puts.append((item, condition, timeout_s))
        if self.refuse(condition):
            raise ConditionFailed("no")
        self.items[item["sk"]["S"]] = item


class DynamoWorld(StoreWorld):
    """The store on a `DynamoTable` with a `ScriptedClient`."""

    def __init__(self, clock: ManualClock) -> None:
        self.signer = AwsSigner(Session(), LOCATION)
        self.client = ScriptedClient(clock, self.signer)
        recorder = Recorder()
        self.table = DynamoTable(self.client, clock, recorder)
        super().__init__(clock, self.table, recorder)

    @property
    def limits(self) -> list[float]:
        """The limit of each page so far, in seconds."""
        return [limit_s for _, _, limit_s in self.client.pages]

    def has(self, name: str = "a", **facts: Any) -> None:
        """Put a live item into the table, as another instance does."""
        item = attributes_of(self.foreign(name, **facts))
        self.client.items[item["sk"]["S"]] = item
