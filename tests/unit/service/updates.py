"""A catalog whose store sends nothing by itself, and updates to send for it."""

import asyncio
from collections.abc import Iterable
from typing import Any

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool, Registration
from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.ports.source import Sink
from poolmuster.ports.store import Expiry
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.updates import Renewal, SourceUpdate
from tests.support.catalog import POLICY, CatalogWorld
from tests.support.clock import ManualClock
from tests.support.registrations import deregistration, registration, renewal

LEASE_MS = POLICY.duration_ms
Update = SourceUpdate[PoolKey, Pool]
UNKNOWN = SourceStatus(
    kind=SourceKind.TABLE, name="t", state=SourceState.UNKNOWN, reason=SourceReason.WARMING_UP, detail="not yet"
)
FRESH = SourceStatus(kind=SourceKind.TABLE, name="t")
STALE = SourceStatus(
    kind=SourceKind.REGION, name="r", state=SourceState.STALE, reason=SourceReason.REPLICATION, detail="silent"
)


class SilentStore:
    """A store that sends nothing by itself: tests send for it."""

    expiry = Expiry.ON_UPDATE

    def __init__(self) -> None:
        self.now: tuple[SourceStatus, ...] = (UNKNOWN,)

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        return self.now

    async def run(self, sink: Sink) -> None:
        await asyncio.Event().wait()

    async def put(self, registration: Registration) -> None:
        raise NotImplementedError

    async def deregister(self, deregistration: PoolDeregistration) -> None:
        raise NotImplementedError


class World(CatalogWorld[SilentStore]):
    """A catalog, and updates that are sent to it."""

    clock: ManualClock

    def __init__(self, *, has_topology: bool = False) -> None:
        super().__init__(ManualClock(), lambda *_: SilentStore(), has_topology=has_topology)

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def update(
        self,
        *,
        names: Iterable[str] = (),
        left: Iterable[str] = (),
        credit_ms: int = 0,
        expire: bool = False,
        statuses: tuple[SourceStatus, ...] | None = None,
    ) -> Update:
        """An update as of now that renews ``names`` for a lease and deregisters ``left``."""
        return SourceUpdate(
            started_ms=self.now_ms,
            credit_ms=credit_ms,
            renewals=tuple(renew(name) for name in names),
            deregistrations=tuple(deregistration(name) for name in left),
            expire=expire,
            statuses=statuses,
        )

    async def good_read(self, *names: str) -> None:
        """One good read: the source is fresh from before its update is sent, as a store of a table is."""
        self.store.now = (FRESH,)
        await self.sink.apply(self.update(names=names, expire=True, statuses=self.store.now))

    @property
    def events(self) -> list[str]:
        """All changes in short."""
        return [f"{each.kind} {each.record.key.dgd_name}" if each.record else str(each.kind) for each in self.changes]


def renew(name: str, **facts: Any) -> Renewal[Pool]:
    return renewal(registration(name, "r", **facts), LEASE_MS, LEASE_MS)
