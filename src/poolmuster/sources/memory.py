"""The memory store: one instance, nothing survives it.

It can be read at once. Right after a start it lacks live pools, so it is stale (``warming_up``) until one lease has
passed: by then every live relay has registered again. The same holds after a pause of the process that was longer than
the slack, as relays may have renewed elsewhere meanwhile.
"""

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Registration
from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.ports.clock import Clock, LeaseClock
from poolmuster.ports.source import Sink
from poolmuster.ports.store import Expiry
from poolmuster.registry.relay_records import RelayRecords
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.updates import Renewal, SourceUpdate
from poolmuster.registry.warmup import Warmup

EVICT_EVERY_MS = 250


class MemoryStore:
    """`poolmuster.ports.store.RegistrationStore` in this process."""

    expiry = Expiry.CONTINUOUS

    def __init__(self, clock: Clock, lease_clock: LeaseClock, policy: LeasePolicy) -> None:
        self._clock = clock
        self._lease_clock = lease_clock
        self._lease_ms = policy.duration_ms
        self._records: RelayRecords[PoolKey] = RelayRecords(policy.duration_ms)
        self._warmup = Warmup(policy, clock.monotonic_ms())
        self._sink: Sink | None = None
        lease_clock.subscribe(self._warmup.paused)
        lease_clock.subscribe(self._records.paused)

    def __len__(self) -> int:
        return len(self._records)

    async def put(self, registration: Registration) -> None:
        assert self._sink is not None, "put is called while run runs"
        now_ms, lease_ms = self._lease_clock.notice_pause(), self._lease_ms
        pool, relay_id = registration.pool, registration.relay_id
        self._records.register(pool.key, relay_id, now_ms)
        renewal = Renewal(pool, relay_id, lease_ms, lease_ms)
        await self._sink.apply(SourceUpdate(started_ms=now_ms, renewals=(renewal,)))

    async def deregister(self, deregistration: PoolDeregistration) -> None:
        assert self._sink is not None, "deregister is called while run runs"
        now_ms = self._lease_clock.notice_pause()
        if self._records.deregister(deregistration.key, deregistration.relay_id, now_ms):
            await self._sink.apply(SourceUpdate(started_ms=now_ms, deregistrations=(deregistration,)))

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        if self._warmup.is_warm(now_ms):
            return (SourceStatus(kind=SourceKind.MEMORY, name="memory"),)
        return (
            SourceStatus(
                kind=SourceKind.MEMORY,
                name="memory",
                state=SourceState.STALE,
                reason=SourceReason.WARMING_UP,
                detail="Pools that were live before may not have registered here yet.",
                clears_at_ms=self._warmup.warm_at_ms,
            ),
        )

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        while True:
            await self._clock.sleep_ms(EVICT_EVERY_MS)
            self._records.evict(self._clock.monotonic_ms())
