"""The catalog: what the sources send becomes the list, its change log and the events of watchers.

It is the one writer of the list. Live registrations and placements are the inputs of one join
(`poolmuster.registry.listing`); limits count live registrations, whether they are listed or not.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import structlog

from poolmuster.model.change import Change, ChangeKind, PoolChange, Removal
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool
from poolmuster.model.schema import Conflict, LeaseStatus, RouterReplica
from poolmuster.platform.lease_clock import PAUSE_MS
from poolmuster.ports.clock import Clock, LeaseClock
from poolmuster.ports.source import Source
from poolmuster.ports.store import Expiry
from poolmuster.registry.change_log import ChangeLog
from poolmuster.registry.conflicts import ConflictSpan
from poolmuster.registry.leases import LeaseEvent, LeaseTable
from poolmuster.registry.listing import Join, UnlistedReason
from poolmuster.registry.record_list import RecordList
from poolmuster.registry.updates import Placements, SourceUpdate
from poolmuster.service.completeness import Completeness, MonitoredSource, SourceMonitor
from poolmuster.service.removals import Removals, removal_by

log = structlog.get_logger("poolmuster.catalog")
_levels = logging.getLogger("poolmuster.catalog")

APPLY_BATCH = 100
"""How many renewals, deregistrations, placements or ends of leases are applied in one turn of the event loop."""

EVICT_EVERY_MS = 60_000


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """All that the catalog has of one key. ``reason`` is why it is not listed, where one of the inputs has it."""

    listed: Pool | None
    lease: LeaseStatus | None
    conflict: Conflict | None
    removal: Removal | None
    reason: UnlistedReason | None


class CatalogSink:
    """The sink of one source (`poolmuster.ports.source.Sink`).

    An update is applied whole, also where the task that sent it is cancelled: its source counts it as sent.
    """

    def __init__(self, catalog: "Catalog", monitored: MonitoredSource) -> None:
        self._catalog = catalog
        self._monitored = monitored
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self.routers: tuple[RouterReplica, ...] = ()

    async def apply(self, update: SourceUpdate[PoolKey, Pool]) -> None:
        if not self._running and _is_short(update):
            for _ in self._catalog.apply_in_slices(self, update):
                pass
            if update.statuses is not None:
                self._catalog.refresh()
            return
        self._monitored.applying += 1
        task = asyncio.create_task(self._apply_in_turn(update))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def _apply_in_turn(self, update: SourceUpdate[PoolKey, Pool]) -> None:
        async with self._lock:
            try:
                for _ in self._catalog.apply_in_slices(self, update):
                    await asyncio.sleep(0)
            finally:
                self._monitored.applying -= 1
            # Without statuses too: those of an update before this one may have waited for this one's end.
            self._catalog.refresh()

    def statuses_changed(self) -> None:
        self._catalog.refresh()

    def announce_stale(self, update: SourceUpdate[PoolKey, Pool]) -> None:
        """Let the statuses of ``update`` that are not fresh take effect before the update ends leases."""
        if update.statuses is not None:
            self._monitored.hold_stale(update.statuses)
            self._catalog.refresh()


class Catalog:
    """The list of one instance, under its boot id. ``expiry`` is that of the registration store."""

    def __init__(
        self,
        *,
        boot_id: str,
        clock: Clock,
        lease_clock: LeaseClock,
        expiry: Expiry,
        change_log: ChangeLog[Pool],
        wake: Callable[[], None],
        has_topology: bool = False,
    ) -> None:
        self.boot_id = boot_id
        self._clock = clock
        self._lease_clock = lease_clock
        self._continuous = expiry is Expiry.CONTINUOUS
        self._wake = wake
        self.change_log = change_log
        self.pools: RecordList[Pool] = RecordList()
        self.leases: LeaseTable[PoolKey, Pool] = LeaseTable(lambda key: key.cluster_id)
        self._join: Join[PoolKey, Pool] = Join(has_topology=has_topology)
        self._monitor = SourceMonitor(clock)
        self._sinks: list[CatalogSink] = []
        self._removals = Removals()
        self._evicted_ms = clock.monotonic_ms()
        self.conflicts_begun = 0
        self.routers: tuple[RouterReplica, ...] = ()
        self.on_overdue: Callable[[], None] = lambda: None
        """Called by an answer that found the timer late."""
        lease_clock.subscribe(self._on_pause)

    def attach(self, source: Source) -> CatalogSink:
        """Add a source, before anything is served. Returns its sink."""
        sink = CatalogSink(self, self._monitor.add(source))
        self._sinks.append(sink)
        return sink

    @property
    def revision(self) -> str:
        """``BOOT.N``, N being the number of the latest change."""
        return f"{self.boot_id}.{self.change_log.number}"

    def apply_in_slices(self, sink: CatalogSink, update: SourceUpdate[PoolKey, Pool]) -> Iterator[None]:
        """Apply ``update`` in the order of its parts (`poolmuster.registry.updates`); yields between two slices."""
        leases, started_ms = self.leases, update.started_ms
        if update.credit_ms:
            leases.credit(update.credit_ms)
        for start in _slices(update.renewals):
            if start:
                yield
            self._record([leases.renew(each, started_ms) for each in update.renewals[start : start + APPLY_BATCH]])
        for start in _slices(update.deregistrations):
            if start:
                yield
            self._record(list(map(leases.deregister, update.deregistrations[start : start + APPLY_BATCH])))
        if update.placements is not None:
            yield from self._place(update.placements)
        if update.routers is not None:
            sink.routers = update.routers
            self.routers = tuple(router for each in self._sinks for router in each.routers)
        if update.expire:
            sink.announce_stale(update)
            while self._expire(started_ms):
                yield

    def _expire(self, now_ms: int) -> bool:
        """End some leases that are over. Returns whether more remain."""
        self._record(self.leases.expire(now_ms, APPLY_BATCH))
        return self.leases.has_expired(now_ms)

    def _record(self, events: Iterable[LeaseEvent[Pool] | None]) -> None:
        """Record what events of live registrations change in the list."""
        changed = False
        for event in events:
            if event is not None:
                record = event.after or event.before
                assert record is not None, "an event is about a record"
                self._list(record.key, event.after, event)
                changed = True
        if self.leases.new_conflicts:
            self._report_conflicts()
        if changed:
            self._wake()

    def _place(self, placements: Placements[PoolKey]) -> Iterator[None]:
        """Record what changed placements change in the list."""
        keys = list(self._join.place(placements))
        for start in _slices(keys):
            for key in keys[start : start + APPLY_BATCH]:
                if (lease := self.leases.get(key)) is not None:
                    self._list(key, lease.record, None)
            self._wake()
            yield

    def _list(self, key: PoolKey, live: Pool | None, event: LeaseEvent[Pool] | None) -> None:
        """Bring the list up to date for one key. ``event`` is what happened to its live registration, if anything."""
        before, after = self.pools.get(key), self._join.listed(live)
        if before is after:
            return
        at_ms, now_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        kind, removal = ChangeKind.CHANGED, None
        if after is None:
            kind, removal = ChangeKind.REMOVED, removal_by(event, at_ms)
            self.pools.remove(key)
            self._removals.put(key, removal, now_ms)
        else:
            if before is None:
                kind = ChangeKind.ADDED
                self._removals.pop(key)
            self.pools.put(after)
        self._append(
            Change(
                number=self.change_log.number + 1,
                kind=kind,
                at_ms=at_ms,
                monotonic_ms=now_ms,
                before=before,
                after=after,
                removal=removal,
            )
        )

    def _append(self, change: PoolChange) -> None:
        self.change_log.append(change)
        # Asked first: ten thousand leases may end at once, and to make a line costs 10 us.
        if change.kind is not ChangeKind.COMPLETENESS and _levels.isEnabledFor(logging.DEBUG):
            record, removal = change.after or change.before, change.removal
            details = {"cause": removal.cause, "reason": removal.reason} if removal else {}
            log.debug("list changed", kind=change.kind, pool=str(record.key) if record else "", **details)

    def _report_conflicts(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for key in self.leases.new_conflicts:
            span = self.leases.conflict(key, now_ms)
            self.conflicts_begun += 1
            log.warning("relays register one pool in turn", pool=str(key), relay_ids=span.relay_ids if span else ())
        self.leases.new_conflicts.clear()

    def _on_pause(self, ended_ms: int, length_ms: int) -> None:
        """This process was stopped (rule L5). No answer is complete before the sources were asked again."""
        if self._continuous:
            self.leases.credit(length_ms)
        self._monitor.invalidate()

    def tick(self, now_ms: int) -> None:
        """What the timer does (`poolmuster.service.expiry`)."""
        if now_ms - self._evicted_ms > EVICT_EVERY_MS:
            self._evicted_ms = now_ms
            self.leases.evict(now_ms)
            self._removals.evict(now_ms)
        self.refresh()
        if self._continuous:
            self._expire(now_ms)

    @property
    def due_ms(self) -> int:
        """The earliest monotonic time at which the timer could end a lease, or a status changes by itself."""
        expiry_ms = self.leases.next_expiry_ms() if self._continuous else None
        return self._monitor.due_ms if expiry_ms is None else min(expiry_ms, self._monitor.due_ms)

    def refresh(self) -> None:
        """Ask the sources for their statuses; watchers get an event where the difference matters."""
        if self._monitor.refresh():
            value = self._monitor.value
            self._append(
                Change(
                    number=self.change_log.number + 1,
                    kind=ChangeKind.COMPLETENESS,
                    at_ms=self._clock.wall_ms(),
                    monotonic_ms=self._clock.monotonic_ms(),
                    sources=value.sources,
                )
            )
            reasons = {source.name: source.reason for source in value.sources if source.reason}
            log.info("list complete" if value.complete else "list incomplete", sources=reasons)
            self._wake()

    def completeness(self) -> Completeness:
        """Whether the list is complete. A request reads a value and changes nothing.

        Past the end of the value, or where the timer is late, the answer is incomplete, and the timer runs at once.
        """
        value = self._monitor.value
        now_ms = self._clock.monotonic_ms()
        if now_ms <= value.valid_until_ms and now_ms - self._lease_clock.ticked_ms <= PAUSE_MS:
            return value
        self.on_overdue()
        return self._monitor.doubtful()

    async def settled_completeness(self) -> Completeness:
        """Like `completeness`, after the timer has run where it is late: for what begins a stream of changes."""
        value = self.completeness()
        if value is not self._monitor.value:
            await asyncio.sleep(0)
            value = self.completeness()
        return value

    def is_live(self, key: PoolKey) -> bool:
        """Whether ``key`` has a live registration."""
        return self.leases.get(key) is not None

    def has_conflict(self, key: PoolKey) -> bool:
        """Whether relays register ``key`` in turn now (rule L9)."""
        return self.conflicts_begun > 0 and self.leases.conflict(key, self._clock.monotonic_ms()) is not None

    def lookup(self, key: PoolKey) -> Found:
        """All that there is of one key."""
        now_ms = self._clock.monotonic_ms()
        lease = self.leases.get(key)
        span = self.leases.conflict(key, now_ms)
        return Found(
            listed=self.pools.get(key),
            lease=self.lease(key),
            conflict=None if span is None else self._shown(span, now_ms),
            removal=self._removals.get(key, now_ms),
            reason=self._join.unlisted_reason(key, None if lease is None else lease.record),
        )

    def lease(self, key: PoolKey) -> LeaseStatus | None:
        """The lease of ``key``, where it is live."""
        lease = self.leases.get(key)
        if lease is None:
            return None
        remaining_ms = self.leases.remaining_ms(lease, self._clock.monotonic_ms())
        return LeaseStatus(
            duration_ms=lease.lease_ms, ends_at_ms=self._clock.wall_ms() + remaining_ms, relay_id=lease.relay_id
        )

    def conflicts(self) -> dict[PoolKey, Conflict]:
        """Every conflict there is now, with wall-clock times."""
        now_ms = self._clock.monotonic_ms()
        spans = self.leases.conflicts.all(self.leases.lease_time_ms(now_ms))
        return {key: self._shown(span, now_ms) for key, span in spans.items()}

    def _shown(self, span: ConflictSpan, now_ms: int) -> Conflict:
        to_wall_ms = self._clock.wall_ms() - self.leases.lease_time_ms(now_ms)
        return Conflict(
            relay_ids=span.relay_ids, since_at_ms=span.since_ms + to_wall_ms, last_at_ms=span.last_ms + to_wall_ms
        )


def _is_short(update: SourceUpdate[PoolKey, Pool]) -> bool:
    """Whether ``update`` takes no longer than one slice."""
    items = len(update.renewals) + len(update.deregistrations)
    return items <= APPLY_BATCH and update.placements is None and not update.expire


def _slices(items: Sequence[Any]) -> range:
    return range(0, len(items), APPLY_BATCH)
