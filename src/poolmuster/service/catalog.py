"""The projection: what the store says becomes the list, its history and the news for watchers.

It is the one writer of the list. Completeness is computed when it is asked for; where it then differs from what
watchers were last told, it is announced on the spot, so no answer ever runs ahead of the watch.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from poolmuster.model.change import Change, ChangeKind, Removal, RemovalCause
from poolmuster.model.key import PoolKey
from poolmuster.model.schema import Conflict, LeaseStatus
from poolmuster.model.source import SourceInfo, is_complete
from poolmuster.ports.clock import Clock
from poolmuster.ports.store import RegistrationStore
from poolmuster.registry.change_log import ChangeLog
from poolmuster.registry.conflicts import ConflictSpan
from poolmuster.registry.leases import LeaseEvent, LeaseTable
from poolmuster.registry.record_list import RecordList
from poolmuster.registry.updates import SourceUpdate

EXPIRY_BATCH = 100
"""How many leases end in one turn of the event loop; the rest waits for the next, a millisecond later."""

REMOVALS_LIMIT = 20_000
REMOVALS_KEPT_MS = 3_600_000
EVICT_EVERY_MS = 60_000


class Completeness(msgspec.Struct, frozen=True):
    """Whether the list is complete, and the sources that say so."""

    complete: bool
    sources: tuple[SourceInfo, ...]

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two moments between which watchers need not be told anything."""
        return tuple(source.state_key for source in self.sources)


class Hooks(msgspec.Struct):
    """Hooks for metrics and logs; each is called at once and must be quick."""

    on_change: Callable[[Change], None]
    on_conflict: Callable[[PoolKey, tuple[str, ...]], None]


class Catalog:
    """The list of one instance, under its boot id."""

    def __init__(
        self,
        *,
        boot_id: str,
        clock: Clock,
        store: RegistrationStore,
        change_log: ChangeLog,
        wake: Callable[[], None],
        hooks: Hooks,
    ) -> None:
        self.boot_id = boot_id
        self._clock = clock
        self._store = store
        self._wake = wake
        self._hooks = hooks
        self.change_log = change_log
        self.pools = RecordList()
        self.leases = LeaseTable()
        self._removals: OrderedDict[PoolKey, tuple[int, Removal]] = OrderedDict()
        self._cluster_pools: dict[str, int] = {}
        self._forgotten_ms = clock.monotonic_ms()
        store.attach(self, self.refresh)
        self._announced = Completeness(False, ())
        self._announced = self._look()

    @property
    def revision(self) -> str:
        """``BOOT.N``, N being the number of the latest change."""
        return f"{self.boot_id}.{self.change_log.number}"

    def observe(self, update: SourceUpdate) -> bool:
        """Take in what the store read (`poolmuster.ports.store.StoreObserver`)."""
        now_ms = self._clock.monotonic_ms()
        steps = self.leases.apply(update)
        ended = self.leases.expire(update.started_ms, EXPIRY_BATCH) if update.expire else []
        steps += ended
        for step in steps:
            self._record(step, now_ms)
        if self.leases.new_conflicts:
            self._report_conflicts(now_ms)
        if now_ms - self._forgotten_ms > EVICT_EVERY_MS:
            self._evict(now_ms)
        if steps:
            self._wake()
        return update.expire and self.leases.has_expired(update.started_ms)

    def is_live(self, key: PoolKey) -> bool:
        """Whether the pool is live."""
        return self.leases.get(key) is not None

    def next_expiry_ms(self) -> int | None:
        """When a lease could end next."""
        return self.leases.next_expiry_ms()

    def _record(self, step: LeaseEvent, now_ms: int) -> None:
        pool = step.after or step.before
        assert pool is not None, "a step is about a pool"
        at_ms = self._clock.wall_ms()
        removal = None
        if step.after is not None:
            self.pools.put(step.after)
        else:
            self.pools.remove(pool.key)
            removal = self._remove(step, pool.key, now_ms, at_ms)
        if step.kind is ChangeKind.ADDED:
            self._removals.pop(pool.key, None)
            self._count_cluster(pool.key, 1)
        self._append(
            Change(
                number=self.change_log.number + 1,
                kind=step.kind,
                at_ms=at_ms,
                monotonic_ms=now_ms,
                before=step.before,
                after=step.after,
                removal=removal,
            )
        )

    def _remove(self, step: LeaseEvent, key: PoolKey, now_ms: int, at_ms: int) -> Removal:
        removal = Removal(
            cause=step.cause or RemovalCause.UNLISTED, reason=step.reason, detail=step.detail, at_ms=at_ms
        )
        self._count_cluster(key, -1)
        self._removals[key] = (now_ms, removal)
        if len(self._removals) > REMOVALS_LIMIT:
            self._removals.popitem(last=False)
        return removal

    def _append(self, change: Change) -> None:
        self.change_log.append(change)
        self._hooks.on_change(change)

    def _count_cluster(self, key: PoolKey, by: int) -> None:
        count = self._cluster_pools.get(key.cluster_id, 0) + by
        if count:
            self._cluster_pools[key.cluster_id] = count
        else:
            del self._cluster_pools[key.cluster_id]

    def _report_conflicts(self, now_ms: int) -> None:
        for key in self.leases.new_conflicts:
            span = self.leases.conflict(key, now_ms)
            self._hooks.on_conflict(key, span.relay_ids if span else ())
        self.leases.new_conflicts.clear()

    def _evict(self, now_ms: int) -> None:
        self._forgotten_ms = now_ms
        self.leases.evict(now_ms)
        while self._removals:
            key = next(iter(self._removals))
            if now_ms - self._removals[key][0] < REMOVALS_KEPT_MS:
                return
            del self._removals[key]

    def _look(self) -> Completeness:
        sources = self._store.sources(self._clock.monotonic_ms())
        if sources is self._announced.sources:
            # A store that has nothing new to say gives the same tuple; every answer asks.
            return self._announced
        return Completeness(is_complete(sources), sources)

    def completeness(self) -> Completeness:
        """Whether the list is complete right now. Tells watchers first, where that is news to them."""
        now = self._look()
        if now is self._announced:
            return now
        told, self._announced = self._announced, now
        if now.identity != told.identity:
            at_ms, clock_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
            self._append(
                Change(
                    number=self.change_log.number + 1,
                    kind=ChangeKind.COMPLETENESS,
                    at_ms=at_ms,
                    monotonic_ms=clock_ms,
                    sources=now.sources,
                )
            )
            self._wake()
        return now

    def refresh(self) -> None:
        """Look at the sources for the watchers' sake; called by a timer and by stores in trouble."""
        self.completeness()

    async def run(self, every_ms: int = 100) -> None:
        """Notice changes of completeness that nobody asks about. Runs until cancelled."""
        while True:
            await self._clock.sleep_ms(every_ms)
            self.refresh()

    def cluster_pools(self, cluster_id: str) -> int:
        """How many pools of ``cluster_id`` are listed."""
        return self._cluster_pools.get(cluster_id, 0)

    @property
    def clusters(self) -> dict[str, int]:
        """Listed pools by cluster."""
        return self._cluster_pools

    def removal(self, key: PoolKey) -> Removal | None:
        """Why ``key`` was last removed, while that is remembered and it is not listed again."""
        found = self._removals.get(key)
        if found is None or self._clock.monotonic_ms() - found[0] >= REMOVALS_KEPT_MS:
            return None
        return found[1]

    def lease(self, key: PoolKey) -> LeaseStatus | None:
        """The lease of a listed pool."""
        entry = self.leases.get(key)
        if entry is None:
            return None
        left_ms = self.leases.remaining_ms(entry, self._clock.monotonic_ms())
        return LeaseStatus(
            duration_ms=entry.lease_ms,
            ends_at_ms=self._clock.wall_ms() + left_ms,
            relay_id=entry.registration.relay_id,
        )

    def conflicts(self) -> dict[PoolKey, Conflict]:
        """Every conflict there is now, with wall-clock times."""
        lease_now_ms = self.leases.lease_time_ms(self._clock.monotonic_ms())
        return {key: self._shown(span) for key, span in self.leases.conflicts.all(lease_now_ms).items()}

    def conflict(self, key: PoolKey) -> Conflict | None:
        """The conflict over ``key``, if there is one now."""
        span = self.leases.conflict(key, self._clock.monotonic_ms())
        return None if span is None else self._shown(span)

    def _shown(self, span: ConflictSpan) -> Conflict:
        to_wall_ms = self._clock.wall_ms() - self.leases.lease_time_ms(self._clock.monotonic_ms())
        return Conflict(
            relay_ids=span.relay_ids, since_at_ms=span.since_ms + to_wall_ms, last_at_ms=span.last_ms + to_wall_ms
        )
