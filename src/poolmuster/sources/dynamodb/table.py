"""The table of a polled store on DynamoDB (`poolmuster.sources.polled.table.Table`): pages, retries and conditions."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from poolmuster.model.key import PoolKey
from poolmuster.model.source import SourceReason
from poolmuster.ports.clock import Clock
from poolmuster.sources.dynamodb.client import DynamoClient
from poolmuster.sources.dynamodb.errors import ConditionFailed
from poolmuster.sources.dynamodb.items import Attributes, attributes_of, stored_item
from poolmuster.sources.polled.instrumentation import TableInstrumentation
from poolmuster.sources.polled.table import Condition, NotLeft, SameRelay, StoredItem, StoreError

ATTEMPT_S = 1.2
"""The time of a page before it is tried once more; the rest of the scan's time is for that."""

NOT_LEFT = (
    "attribute_not_exists(left_relay_id) OR left_relay_id <> :relay OR expires_at <= :now OR lease_ends_ms <> :left"
)

FINAL = (
    SourceReason.ACCESS_DENIED,
    SourceReason.TABLE_MISSING,
    SourceReason.CREDENTIALS_MISSING,
    SourceReason.CREDENTIALS_EXPIRED,
    SourceReason.CLOCK_SKEW,
)
"""Reasons that no retry can cure."""


class DynamoTable:
    """One table of DynamoDB."""

    def __init__(self, client: DynamoClient, clock: Clock, instrumentation: TableInstrumentation) -> None:
        self.name = client.location.table
        self.location = str(client.location)
        self.region = client.location.region
        self.server_clock = client.server_clock
        self.opened = client.opened
        self._client = client
        self._clock = clock
        self._instrumentation = instrumentation

    async def scan(self, partitions: Sequence[str], ends_ms: int) -> AsyncGenerator[Iterable[StoredItem], None]:
        """All pages. One page of a scan may be tried twice."""
        failed: StoreError | None = None
        for partition in partitions:
            start: Attributes | None = None
            starts: set[str] = set()
            while True:
                left_s = (ends_ms - self._clock.monotonic_ms()) / 1000
                if left_s <= 0:
                    raise failed or StoreError(SourceReason.TIMEOUT, f"{self.location} was not read in time")
                limit_s = left_s if failed is not None else min(left_s, ATTEMPT_S)
                try:
                    page = await self._client.page(start, limit_s, partition=partition)
                except StoreError as error:
                    if failed is not None or error.reason in FINAL:
                        raise
                    failed = error.with_detail()
                    self._instrumentation.retried(error.reason)
                    continue
                yield map(stored_item, page.Items)
                start = page.LastEvaluatedKey
                if start is None:
                    break
                place = repr(sorted(start.items()))
                if place in starts:
                    raise StoreError(SourceReason.BAD_ANSWER, f"{self.location} gave the same page twice")
                starts.add(place)

    async def get(self, key: PoolKey, timeout_s: float) -> StoredItem | None:
        page = await self._client.page(None, timeout_s, sort_key=key.storage_key)
        return stored_item(page.Items[0]) if page.Items else None

    async def put(self, item: StoredItem, condition: Condition | None, timeout_s: float) -> bool:
        try:
            await self._client.put(attributes_of(item), timeout_s, None if condition is None else _request(condition))
        except ConditionFailed:
            return False
        return True

    def classify(self, error: Exception) -> StoreError | None:
        return None  # the client raises `StoreError` for each of its own: only it can describe a call that failed


def _request(condition: Condition) -> dict[str, Any]:
    """The members of a put that express ``condition``."""
    values: Attributes = {}
    if isinstance(condition, NotLeft):
        expression = NOT_LEFT
        values = {":relay": {"S": condition.relay_id}, ":now": {"N": str(condition.now_s)}, ":left": {"N": "0"}}
    elif isinstance(condition, SameRelay):
        expression, values = "relay_id = :relay", {":relay": {"S": condition.relay_id}}
    elif "lease_ends_ms" in condition.item.raw:
        expression, values = "lease_ends_ms = :ends", {":ends": condition.item.raw["lease_ends_ms"]}
    else:
        expression = "attribute_not_exists(lease_ends_ms)"
    return {"ConditionExpression": expression} | ({"ExpressionAttributeValues": values} if values else {})
