"""The store: a consistent read of the whole table each second, and puts that read nothing.

Never two reads at once. A read has two seconds; one that takes longer has failed, whatever it returned. After a write
of this instance that added, changed or removed a pool it reads again at once, at most four extra times a second.
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager

import msgspec

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.errors import Unavailable
from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Pool, Registration
from poolmuster.model.source import SourceReason
from poolmuster.ports.clock import Clock
from poolmuster.ports.source import Sink
from poolmuster.ports.store import Expiry
from poolmuster.registry.relay_records import deregistered_by
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.table_scan import ScanDiff, TableItem
from poolmuster.sources.polled.instrumentation import CANCELLED, GOOD, REFUSED, TableInstrumentation, TransitionLog
from poolmuster.sources.polled.items import NO_REGION, InvalidItem, ItemParser, deregistered_item, live_item
from poolmuster.sources.polled.table import POOL, NotLeft, SameEnd, SameRelay, StoredItem, StoreError, Table

READ_EVERY_MS = 1_000
READ_GAP_MS = 200
"""The shortest time between the starts of two reads: at most four extra reads a second."""

READ_LIMIT_MS = 2_000
PUT_LIMIT_S = 1.5
DEREGISTER_TRIES = 3
PARSE_BATCH = 200
PARSE_BATCH_BYTES = 256 * 1024
"""Items, and size of texts that are not in the cache, that are parsed in one turn of the event loop."""


class PolledStore:
    """`poolmuster.ports.store.RegistrationStore` on one table."""

    expiry = Expiry.ON_UPDATE

    def __init__(
        self, *, table: Table, clock: Clock, boot_id: str, policy: LeasePolicy, instrumentation: TableInstrumentation
    ) -> None:
        self._table = table
        self._clock = clock
        self._lease_ms = policy.duration_ms
        self._writer = f"{table.region or NO_REGION}/{boot_id}"
        self._instrumentation = instrumentation
        self._transitions = TransitionLog(policy.slack_ms)
        self._diff: ScanDiff[PoolKey, Pool] = ScanDiff(policy.duration_ms, table.region)
        self._parser = ItemParser()
        self._failure: tuple[SourceReason, str] | None = None
        self._reread = asyncio.Event()

    async def put(self, registration: Registration) -> None:
        now_ms, relay_id = self._table_now_ms(), registration.relay_id
        item = live_item(registration, ends_ms=now_ms + self._lease_ms, lease_ms=self._lease_ms, writer=self._writer)
        condition = None if relay_id is None else NotLeft(relay_id, now_ms // 1000)
        with self._unavailable():
            stored = await self._put(item, condition, PUT_LIMIT_S)
        if not stored:
            raise deregistered_by(relay_id)
        if not self._diff.is_renewal(registration.pool, self._clock.monotonic_ms()):
            self._reread.set()

    async def deregister(self, deregistration: PoolDeregistration) -> None:
        ends_ms = self._clock.monotonic_ms() + round(PUT_LIMIT_S * 1000)
        with self._unavailable():
            for _ in range(DEREGISTER_TRIES):
                # Read first, so that what is put is the item as it is, and an unknown key writes nothing.
                item = await self._table.get(deregistration.key, self._remaining_s(ends_ms))
                if item is None or await self._deregister_item(item, deregistration, ends_ms):
                    return
        raise Unavailable("The pool is renewed so often that it could not be deregistered; try again.")

    async def _deregister_item(self, item: StoredItem, deregistration: PoolDeregistration, ends_ms: int) -> bool:
        """Deregister ``item``. Returns whether nothing is left to do; otherwise it was put again meanwhile."""
        relay_id = deregistration.relay_id
        if relay_id is not None and (item.relay_id != relay_id or item.left_relay_id == relay_id):
            return True
        left = deregistered_item(item, deregistration, now_ms=self._table_now_ms())
        condition = SameEnd(item) if relay_id is None else SameRelay(relay_id)
        if not await self._put(left, condition, self._remaining_s(ends_ms)):
            return relay_id is not None
        self._reread.set()
        return True

    def _remaining_s(self, ends_ms: int) -> float:
        remaining_ms = ends_ms - self._clock.monotonic_ms()
        if remaining_ms <= 0:
            raise StoreError(SourceReason.TIMEOUT, f"{self._table.location} did not answer within {PUT_LIMIT_S:.1f} s")
        return remaining_ms / 1000

    async def _put(self, item: StoredItem, condition: NotLeft | SameEnd | SameRelay | None, limit_s: float) -> bool:
        started_ms, outcome = self._clock.monotonic_ms(), CANCELLED
        try:
            stored = await self._table.put(item, condition, limit_s)
            outcome = GOOD if stored else REFUSED
        except Exception as error:
            if (known := self._classify(error)) is not None:
                outcome = known.reason
            raise
        finally:
            self._instrumentation.wrote(outcome, self._clock.monotonic_ms() - started_ms)
        return stored

    @contextmanager
    def _unavailable(self) -> Iterator[None]:
        """Translates errors of the table into `Unavailable`."""
        try:
            yield
        except Exception as error:
            if (known := self._classify(error)) is None:
                raise
            raise Unavailable(f"The registration could not be stored ({known.reason}): {known.shown}") from error

    def _classify(self, error: Exception) -> StoreError | None:
        return error if isinstance(error, StoreError) else self._table.classify(error)

    def _table_now_ms(self) -> int:
        return self._table.server_clock.now_ms(self._clock.monotonic_ms(), self._clock.wall_ms())

    async def run(self, sink: Sink) -> None:
        async with self._table.opened():
            while True:
                started_ms = self._clock.monotonic_ms()
                await self.read_once(sink)
                await self._sleep_until(started_ms + READ_GAP_MS)
                due = asyncio.create_task(self._sleep_until(started_ms + READ_EVERY_MS))
                reread = asyncio.create_task(self._reread.wait())
                try:
                    await asyncio.wait((due, reread), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    due.cancel()
                    reread.cancel()
                if self._reread.is_set():
                    self._instrumentation.extra_read()
                    self._reread.clear()

    async def _sleep_until(self, at_ms: int) -> None:
        await self._clock.sleep_ms(max(0, at_ms - self._clock.monotonic_ms()))

    async def read_once(self, sink: Sink) -> None:
        """One read of the whole table, and the update or the status that results."""
        started_ms = self._clock.monotonic_ms()
        try:
            items = await self._scan(started_ms)
        except Exception as error:  # noqa: BLE001
            # The next read may be good: an instance never ends for what a table answers.
            known = self._classify(error) or self._transitions.unexpected(error, self._table.location)
            self._read_ended(known, self._clock.monotonic_ms() - started_ms)
            sink.statuses_changed()
            return
        duration_ms = self._clock.monotonic_ms() - started_ms
        self._read_ended(None, duration_ms)
        table_now_ms = self._table.server_clock.now_ms(started_ms, self._clock.wall_ms() - duration_ms)
        update = self._diff.apply_scan(items, started_ms, table_now_ms)
        await sink.apply(msgspec.structs.replace(update, statuses=self.statuses(self._clock.monotonic_ms())))

    async def _scan(self, started_ms: int) -> list[TableItem[PoolKey, Pool]]:
        """All items that can be parsed. Raises what the table does, and `StoreError` where it took too long."""
        items: list[TableItem[PoolKey, Pool]] = []
        invalid: dict[str, str] = {}
        parsed_bytes = self._parser.parsed_bytes
        self._parser.begin_scan()
        async with aclosing(self._table.scan((POOL,), started_ms + READ_LIMIT_MS)) as parts:
            async for part in parts:
                for number, item in enumerate(part, 1):
                    try:
                        items.append(self._parser.parse(item))
                    except InvalidItem as error:
                        invalid[item.key] = str(error)
                    if number % PARSE_BATCH == 0 or self._parser.parsed_bytes - parsed_bytes > PARSE_BATCH_BYTES:
                        parsed_bytes = self._parser.parsed_bytes
                        await asyncio.sleep(0)
        self._parser.end_scan()
        self._instrumentation.skipped(len(invalid))
        self._transitions.invalid_items(invalid)
        duration_ms = self._clock.monotonic_ms() - started_ms
        if duration_ms > READ_LIMIT_MS:
            detail = f"{self._table.location} took {duration_ms / 1000:.1f} s to be read"
            raise StoreError(SourceReason.TIMEOUT, detail)
        return items

    def _read_ended(self, error: StoreError | None, duration_ms: int) -> None:
        self._failure = None if error is None else (error.reason, error.shown)
        ahead_ms = self._table.server_clock.skew_ms(self._clock.monotonic_ms(), self._clock.wall_ms())
        self._instrumentation.read(GOOD if error is None else error.reason, duration_ms)
        self._instrumentation.clock_ahead(ahead_ms)
        self._transitions.read_ended(error)
        self._transitions.clock_ahead(ahead_ms)

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        return self._diff.statuses(self._table.name, now_ms, self._failure)
