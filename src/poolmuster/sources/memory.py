"""The memory store: one instance, nothing survives it.

It can be read at once, but right after a start it knows less than is alive: it says so (``warming_up``) until one
lease has passed, for by then every live relay has registered again. The same holds after a pause of the process that
was longer than the slack, as relays may have gone on elsewhere, or new ones come.
"""

from collections import OrderedDict
from collections.abc import Callable

from poolmuster.model.change import Deregistration
from poolmuster.model.errors import RelayDeregistered
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Registration
from poolmuster.model.source import SourceInfo, SourceKind, SourceReason, SourceState
from poolmuster.ports.clock import Clock
from poolmuster.ports.store import StoreObserver
from poolmuster.registry.departed import DEPARTED_LIMIT, EVICT_BATCH, RETENTION_MS, DepartedPool
from poolmuster.registry.pauses import TICK_MS, PauseDetector
from poolmuster.registry.updates import Renewal, SourceUpdate


class MemoryStore:
    """`poolmuster.ports.store.RegistrationStore` in this process."""

    name = "memory"

    def __init__(self, clock: Clock, lease_ms: int, heartbeat_interval_ms: int) -> None:
        self._clock = clock
        self._lease_ms = lease_ms
        self._slack_ms = lease_ms - heartbeat_interval_ms
        self._records: OrderedDict[PoolKey, DepartedPool] = OrderedDict()
        now_ms = clock.monotonic_ms()
        self._pauses = PauseDetector(now_ms)
        self._warm_at_ms = now_ms + lease_ms
        self._since_at_ms = clock.wall_ms()
        self._warmed = False
        self._fresh: tuple[SourceInfo, ...] = ()
        self._observer: StoreObserver | None = None

    def attach(self, observer: StoreObserver, on_trouble: Callable[[], None]) -> None:
        self._observer = observer

    def __len__(self) -> int:
        return len(self._records)

    async def put(self, registration: Registration) -> None:
        now_ms = self._clock.monotonic_ms()
        key = registration.pool.key
        record = self._records.get(key)
        if record is None:
            self._records[key] = DepartedPool(registration.relay_id, None, now_ms)
        else:
            if self._bars(record, registration, now_ms):
                raise RelayDeregistered(
                    f"Relay {registration.relay_id!r} deregistered this pool. "
                    "A relay that starts again takes a new relay_id."
                )
            record.relay_id, record.left_relay_id, record.at_ms = registration.relay_id, None, now_ms
            self._records.move_to_end(key)
        self._tell(now_ms, renewals=(Renewal(registration, self._lease_ms, self._lease_ms),))

    @staticmethod
    def _bars(record: DepartedPool, registration: Registration, now_ms: int) -> bool:
        return (
            record.left_relay_id is not None
            and record.left_relay_id == registration.relay_id
            and now_ms - record.at_ms < RETENTION_MS
        )

    async def deregister(self, deregistration: Deregistration) -> None:
        now_ms = self._clock.monotonic_ms()
        record = self._records.get(deregistration.key)
        if record is None or (deregistration.relay_id is not None and deregistration.relay_id != record.relay_id):
            return
        record.left_relay_id, record.at_ms = deregistration.relay_id, now_ms
        self._records.move_to_end(deregistration.key)
        self._tell(now_ms, departures=(deregistration,))

    def _tell(
        self,
        now_ms: int,
        renewals: tuple[Renewal, ...] = (),
        departures: tuple[Deregistration, ...] = (),
        *,
        tick: bool = False,
    ) -> None:
        credit_ms = self._pauses.tick(now_ms) if tick else self._pauses.check(now_ms)
        if credit_ms > self._slack_ms:
            self._warm_at_ms = now_ms + self._lease_ms
            self._since_at_ms = self._clock.wall_ms()
            self._warmed = False
        elif self._warm_at_ms > now_ms - credit_ms:
            # What was not heard while warming up must still have its lease to come in.
            self._warm_at_ms += credit_ms
        assert self._observer is not None, "a store is attached before it is used"
        self._observer.observe(
            SourceUpdate(
                started_ms=now_ms,
                credit_ms=credit_ms,
                renewals=renewals,
                deregistrations=departures,
                # The timer alone ends leases, so many a turn: were each heartbeat to end as many, a turn of the loop
                # with a hundred heartbeats would end ten thousand.
                expire=tick,
            )
        )

    def sources(self, now_ms: int) -> tuple[SourceInfo, ...]:
        if self._pauses.is_overdue(now_ms):
            self._tell(now_ms)
        warming_ms = self._warm_at_ms - now_ms
        if warming_ms > 0:
            return (self._source(warming_ms),)
        if not self._warmed:
            self._warmed = True
            self._since_at_ms = self._clock.wall_ms()
            self._fresh = (self._source(None),)
        return self._fresh

    def _source(self, warming_ms: int | None) -> SourceInfo:
        fresh = warming_ms is None
        return SourceInfo(
            kind=SourceKind.MEMORY,
            name=self.name,
            state=SourceState.FRESH if fresh else SourceState.STALE,
            reason=None if fresh else SourceReason.WARMING_UP,
            detail=None if fresh else "Pools that were live before may not have registered here yet.",
            since_at_ms=self._since_at_ms,
            clears_in_ms=warming_ms,
        )

    async def run(self) -> None:
        while True:
            now_ms = self._clock.monotonic_ms()
            end_ms = self._observer.next_expiry_ms() if self._observer is not None else None
            wait_ms = TICK_MS if end_ms is None else min(TICK_MS, max(1, end_ms - now_ms))
            await self._clock.sleep_ms(wait_ms)
            now_ms = self._clock.monotonic_ms()
            self._tell(now_ms, tick=True)
            self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        """Drop records in the order of their last event, those of live pools apart."""
        assert self._observer is not None, "a store is attached before it is used"
        horizon_ms = now_ms - self._lease_ms - RETENTION_MS
        for _ in range(min(EVICT_BATCH, len(self._records))):
            key = next(iter(self._records))
            if self._records[key].at_ms > horizon_ms and len(self._records) <= DEPARTED_LIMIT:
                return
            if self._observer.is_live(key):
                self._records.move_to_end(key)
            else:
                del self._records[key]
