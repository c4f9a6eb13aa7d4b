"""The store: a consistent read of everything each second, and puts that never read.

Never two reads at once. A read of all pages with its one retry has two seconds; what takes longer has failed, whatever
it returned. After a write of its own that added, changed or removed a pool it reads again at once, at most four extra
times a second.
"""

import asyncio
from typing import Any

import msgspec

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.errors import RelayDeregistered, Unavailable
from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Pool, Registration
from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.ports.clock import Clock
from poolmuster.ports.source import Sink
from poolmuster.ports.store import Expiry
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.table_scan import ScanDiff, TableItem
from poolmuster.sources.dynamodb.aws import AwsSigner
from poolmuster.sources.dynamodb.client import DynamoClient
from poolmuster.sources.dynamodb.errors import ConditionFailed, StoreError
from poolmuster.sources.dynamodb.instrumentation import CANCELLED, GOOD, REFUSED, TableInstrumentation, TransitionLog
from poolmuster.sources.dynamodb.items import (
    NO_REGION,
    Attributes,
    InvalidItem,
    ParsedItems,
    deregistered_item,
    live_item,
)
from poolmuster.sources.dynamodb.server_clock import ServerClock

READ_EVERY_MS = 1_000
READ_LIMIT_MS = 2_000
ATTEMPT_S = 1.2
"""What a page gets before it is tried once more; the rest of the two seconds is for that."""

PUT_LIMIT_S = 1.5
STALE_AFTER_MS = 3_000
EXTRA_READS_A_SECOND = 4
ITEMS_A_TURN = 200
BYTES_A_TURN = 256 * 1024
"""Of texts that were not read before, until others have their turn."""

RENEWALS_A_TURN = 100
LEAVE_TRIES = 3

NOT_LEFT = (
    "attribute_not_exists(left_relay_id) OR left_relay_id <> :relay OR expires_at <= :now OR lease_ends_ms <> :left"
)
"""Another implementation that renews an item of ours may leave in it what it does not know, so the end counts too."""


class DynamoStore:
    """`poolmuster.ports.store.RegistrationStore` on one table."""

    expiry = Expiry.ON_UPDATE

    def __init__(
        self,
        *,
        calls: DynamoClient,
        access: AwsSigner,
        clock: Clock,
        table_clock: ServerClock,
        boot_id: str,
        policy: LeasePolicy,
        notes: TableInstrumentation,
    ) -> None:
        self._calls = calls
        self._access = access
        self._clock = clock
        self._table_clock = table_clock
        self._lease_ms = lease_ms = policy.duration_ms
        self._writer = f"{calls.location.region or NO_REGION}/{boot_id}"
        self._instrumentation = notes
        self._transitions = TransitionLog(policy.slack_ms)
        self._reader: ScanDiff[PoolKey, Pool] = ScanDiff(lease_ms, calls.location.region)
        self._items = ParsedItems()
        self._trouble: StoreError | None = None
        self._good_ms: int | None = None
        self._reread = asyncio.Event()

    async def put(self, registration: Registration) -> None:
        now_ms = self._table_now_ms()
        item = live_item(registration, ends_ms=now_ms + self._lease_ms, lease_ms=self._lease_ms, writer=self._writer)
        condition = None
        if registration.relay_id is not None:
            condition = {
                "ConditionExpression": NOT_LEFT,
                "ExpressionAttributeValues": {
                    ":relay": {"S": registration.relay_id},
                    ":now": {"N": str(now_ms // 1000)},
                    ":left": {"N": "0"},
                },
            }
        try:
            await self._put(item, condition)
        except ConditionFailed as error:
            whose = f"Relay {registration.relay_id!r} deregistered this pool."
            raise RelayDeregistered(f"{whose} A relay that starts again takes a new relay_id.") from error
        except StoreError as error:
            raise _unavailable(error) from error
        if not self._reader.is_renewal(registration.pool, self._clock.monotonic_ms()):
            self._reread.set()

    async def deregister(self, deregistration: PoolDeregistration) -> None:
        ends_ms = self._clock.monotonic_ms() + round(PUT_LIMIT_S * 1000)
        try:
            for _ in range(LEAVE_TRIES):
                # Read first, so that what is put is the item as it stands, and an unknown key writes nothing.
                page = await self._calls.page(None, self._left_s(ends_ms), sort_key=deregistration.key.storage_key)
                if not page.Items or await self._left(page.Items[0], deregistration, ends_ms):
                    return
        except StoreError as error:
            raise _unavailable(error) from error
        raise Unavailable("The pool is renewed so often that it could not be deregistered; try again.")

    def _left_s(self, ends_ms: int) -> float:
        left_ms = ends_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise StoreError(SourceReason.TIMEOUT, f"{self._calls.location} did not answer within {PUT_LIMIT_S:.1f} s")
        return left_ms / 1000

    async def _left(self, item: Attributes, deregistration: PoolDeregistration, ends_ms: int) -> bool:
        """Deregister ``item``. Returns whether it is settled; if not, somebody wrote in between."""
        if deregistration.relay_id is not None:
            by_it = {"S": deregistration.relay_id}
            if item.get("relay_id") != by_it or item.get("left_relay_id") == by_it:
                return True
            condition, values = "relay_id = :relay", {":relay": by_it}
        elif "lease_ends_ms" in item:
            condition, values = "lease_ends_ms = :ends", {":ends": item["lease_ends_ms"]}
        else:
            condition, values = "attribute_not_exists(lease_ends_ms)", None
        left = deregistered_item(item, deregistration, now_ms=self._table_now_ms())
        request: dict[str, Any] = {"ConditionExpression": condition}
        if values is not None:
            request["ExpressionAttributeValues"] = values
        try:
            await self._put(left, request, self._left_s(ends_ms))
        except ConditionFailed:
            return deregistration.relay_id is not None
        self._reread.set()
        return True

    async def _put(self, item: Attributes, condition: dict[str, Any] | None, limit_s: float = PUT_LIMIT_S) -> None:
        started_ms, outcome = self._clock.monotonic_ms(), CANCELLED
        try:
            await self._calls.put(item, limit_s, condition)
            outcome = GOOD
        except ConditionFailed:
            outcome = REFUSED
            raise
        except StoreError as trouble:
            outcome = trouble.reason
            raise
        finally:
            self._instrumentation.wrote(outcome, self._clock.monotonic_ms() - started_ms)

    def _table_now_ms(self) -> int:
        return self._table_clock.now_ms(self._clock.monotonic_ms(), self._clock.wall_ms())

    async def run(self, sink: Sink) -> None:
        await self._calls.open()
        keeping = asyncio.create_task(self._access.run())
        try:
            await self._access.wait_looked(READ_LIMIT_MS / 1000)
            await self._read_on(sink)
        finally:
            keeping.cancel()
            await self._calls.close()

    async def _read_on(self, sink: Sink) -> None:
        while True:
            started_ms = self._clock.monotonic_ms()
            await self.read_once(sink)
            next_ms = started_ms + READ_EVERY_MS
            earliest_ms = started_ms + 1_000 // (EXTRA_READS_A_SECOND + 1)
            await self._clock.sleep_ms(max(0, earliest_ms - self._clock.monotonic_ms()))
            left_ms = next_ms - self._clock.monotonic_ms()
            if left_ms > 0 and not self._reread.is_set():
                again = asyncio.create_task(self._reread.wait())
                due = asyncio.create_task(self._clock.sleep_ms(left_ms))
                try:
                    await asyncio.wait((again, due), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    again.cancel()
                    due.cancel()
            if self._reread.is_set():
                self._instrumentation.extra_read()
                self._reread.clear()

    async def read_once(self, sink: Sink) -> None:
        """One read of all pages, and what comes of it."""
        started_ms = self._clock.monotonic_ms()
        try:
            items, duration_ms = await self._read_in_time(started_ms)
        except Exception as error:  # noqa: BLE001
            # Whatever an answer does to us, the next may be good: an instance never ends for what a table says.
            trouble = (
                error if isinstance(error, StoreError) else self._transitions.unexpected(error, self._calls.location)
            )
            self._note_read(trouble, self._clock.monotonic_ms() - started_ms)
            sink.statuses_changed()
            return
        self._note_read(None, duration_ms)
        table_now_ms = self._table_clock.now_ms(started_ms, self._clock.wall_ms() - duration_ms)
        update = self._reader.apply_scan(items, started_ms, table_now_ms)
        self._good_ms = started_ms
        await sink.apply(msgspec.structs.replace(update, statuses=self.statuses(self._clock.monotonic_ms())))

    async def _read_in_time(self, started_ms: int) -> tuple[list[TableItem[PoolKey, Pool]], int]:
        items = await self._read_all(started_ms)
        duration_ms = self._clock.monotonic_ms() - started_ms
        if duration_ms > READ_LIMIT_MS:
            took_s = duration_ms / 1000
            raise StoreError(SourceReason.TIMEOUT, f"{self._calls.location} took {took_s:.1f} s to be read")
        return items, duration_ms

    async def _read_all(self, started_ms: int) -> list[TableItem[PoolKey, Pool]]:
        self._items.begin_scan()
        items: list[TableItem[PoolKey, Pool]] = []
        faults: dict[str, str] = {}
        starts: set[str] = set()
        start: Attributes | None = None
        met: StoreError | None = None
        while True:
            left_s = (started_ms + READ_LIMIT_MS - self._clock.monotonic_ms()) / 1000
            if left_s <= 0:
                raise met or StoreError(SourceReason.TIMEOUT, f"{self._calls.location} was not read in time")
            try:
                page = await self._calls.page(start, min(left_s, ATTEMPT_S) if met is None else left_s)
            except StoreError as trouble:
                if met is not None or trouble.reason in _FINAL:
                    raise
                met = trouble
                self._instrumentation.retried(trouble.reason)
                continue
            before = self._items.parsed_bytes
            for number, item in enumerate(page.Items):
                self._parse(item, items, faults)
                if number % ITEMS_A_TURN == ITEMS_A_TURN - 1 or self._items.parsed_bytes - before > BYTES_A_TURN:
                    before = self._items.parsed_bytes
                    await asyncio.sleep(0)
            start = page.LastEvaluatedKey
            if start is None:
                break
            place = repr(sorted(start.items()))
            if place in starts:
                raise StoreError(SourceReason.BAD_ANSWER, f"{self._calls.location} gave the same page twice")
            starts.add(place)
        self._items.end_scan()
        self._instrumentation.skipped(len(faults))
        self._transitions.faults(faults)
        return items

    def _parse(self, item: Attributes, items: list[TableItem[PoolKey, Pool]], faults: dict[str, str]) -> None:
        try:
            items.append(self._items.parse(item))
        except InvalidItem as fault:
            faults[str(item.get("sk"))] = str(fault)

    def _note_read(self, trouble: StoreError | None, duration_ms: int) -> None:
        # A copy: one that was raised holds on to the frames it went through, and with them to all that was read.
        self._trouble = None if trouble is None else trouble.with_detail()
        ahead_ms = self._table_clock.skew_ms(self._clock.monotonic_ms(), self._clock.wall_ms())
        self._instrumentation.read(GOOD if trouble is None else trouble.reason, duration_ms)
        self._instrumentation.clock_ahead(ahead_ms)
        self._transitions.read_ended(trouble)
        self._transitions.clock_ahead(ahead_ms)

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        regions = self._reader.stalled_regions(now_ms)
        return (
            self._table_status(now_ms),
            *(self._region_status(name, now_ms - silent_ms) for name, silent_ms in sorted(regions.items())),
        )

    def _table_status(self, now_ms: int) -> SourceStatus:
        error, good_ms, warm_at_ms = self._trouble, self._good_ms, self._reader.warm_at_ms or now_ms
        if good_ms is None:
            reason = error.reason if error else SourceReason.WARMING_UP
            return self._status(SourceState.UNKNOWN, reason, error.shown if error else "The first read is under way")
        if now_ms - good_ms > STALE_AFTER_MS:
            reason = error.reason if error else SourceReason.TIMEOUT
            detail = error.shown if error else "The last good read is too long ago"
            return self._status(SourceState.STALE, reason, detail)
        if warm_at_ms > now_ms:
            detail = "Most leases in the table had ended: live relays may not have registered again yet"
            return self._status(SourceState.STALE, SourceReason.WARMING_UP, detail, clears_at_ms=warm_at_ms)
        return SourceStatus(
            kind=SourceKind.TABLE, name=self._calls.location.table, fresh_until_ms=good_ms + STALE_AFTER_MS
        )

    def _status(
        self, state: SourceState, reason: SourceReason, detail: str, *, clears_at_ms: int | None = None
    ) -> SourceStatus:
        return SourceStatus(
            kind=SourceKind.TABLE,
            name=self._calls.location.table,
            state=state,
            reason=reason,
            detail=detail,
            clears_at_ms=clears_at_ms,
            last_good_ms=self._good_ms,
        )

    @staticmethod
    def _region_status(region: str, written_ms: int) -> SourceStatus:
        return SourceStatus(
            kind=SourceKind.REGION,
            name=f"region:{region}",
            state=SourceState.STALE,
            reason=SourceReason.REPLICATION,
            detail="All its pools ended without deregistering; replication from it may have stalled",
            last_good_ms=written_ms,
        )


_FINAL = frozenset(
    {
        SourceReason.ACCESS_DENIED,
        SourceReason.TABLE_MISSING,
        SourceReason.CREDENTIALS_MISSING,
        SourceReason.CREDENTIALS_EXPIRED,
        SourceReason.CLOCK_SKEW,
    }
)
"""Trouble that trying again at once cannot mend."""


def _unavailable(trouble: StoreError) -> Unavailable:
    return Unavailable(f"The registration could not be stored ({trouble.reason}): {trouble.shown}")
