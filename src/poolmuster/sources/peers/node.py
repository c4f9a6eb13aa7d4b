"""One boot of this instance: its replica of all registrations, and the members behind the peers' names."""

from collections.abc import Callable, Sequence

import msgspec

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Pool, Registration
from poolmuster.model.source import SourceReason
from poolmuster.ports.clock import LeaseClock
from poolmuster.ports.source import Sink
from poolmuster.registry.updates import SourceUpdate
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.membership import Membership
from poolmuster.replication.messages import Delta, Snapshot
from poolmuster.replication.replica import Replica
from poolmuster.sources.peers.dns import ServiceName
from poolmuster.sources.peers.instrumentation import PeerInstrumentation

SYNCED_BOOTS_LIMIT = 1_000


class PeerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The peers' names, and the number of instances that must be there (0: any number).

    ``pools_limit`` bounds the pools in all, ``bytes_limit`` the bytes of each peer. Both are twice what an instance
    accepts itself, as several that are nearly full may accept a pool at the same time.
    """

    names: tuple[ServiceName, ...]
    policy: LeasePolicy
    expect: int = 0
    pools_limit: int = 40_000
    bytes_limit: int = 512 * 1024 * 1024


class Received(msgspec.Struct, frozen=True):
    """A message of a peer, which was sent at ``as_of_ms`` of this clock, or up to ``uncertainty_ms`` later."""

    message: Delta | Snapshot
    as_of_ms: int
    uncertainty_ms: int = 0


class Node:
    """Keeps `Replica` and `Membership` in step with ``sink``, which is set before anything else is called.

    Others read the two, and change them by the methods here alone. Each of these credits a pause of this process before
    it records anything (rule L5), and lets the sink know where a status may have changed.
    """

    sink: Sink

    def __init__(
        self, lease_clock: LeaseClock, boot_id: str, settings: PeerSettings, instrumentation: PeerInstrumentation
    ) -> None:
        now_ms, policy = lease_clock.notice_pause(), settings.policy
        self.settings = settings
        self.instrumentation = instrumentation
        self.boot_id = boot_id
        self.started_ms = now_ms
        self.notice_pause = lease_clock.notice_pause
        self.replica = Replica(boot_id, policy.duration_ms)
        self.membership = Membership(
            boot_id=boot_id,
            names=tuple(map(str, settings.names)),
            policy=policy,
            now_ms=now_ms,
            expect=settings.expect,
        )
        self._synced_boots: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None
        """Called after a registration or deregistration here that peers must get at once."""
        lease_clock.subscribe(self.replica.paused)
        lease_clock.subscribe(self.membership.paused)

    async def put(self, registration: Registration) -> None:
        """Store or renew a registration made with this instance. Raises `RelayDeregistered`."""
        await self._apply_local(self.replica.put(registration, self.notice_pause()))

    async def deregister(self, deregistration: PoolDeregistration) -> None:
        """Deregister, unless the key is unknown or another relay was the latest."""
        if (update := self.replica.deregister(deregistration, self.notice_pause())) is not None:
            await self._apply_local(update)

    async def _apply_local(self, update: SourceUpdate[PoolKey, Pool]) -> None:
        is_change = self.replica.log.last_change_seq == self.replica.log.seq
        try:
            await self.sink.apply(update)
        finally:
            if is_change:
                self.on_change()

    async def apply_remote(self, address: str, items: Sequence[Write | Tombstone], complete: Received | None) -> None:
        """Apply ``items``, which the instance at ``address`` sent.

        ``complete`` comes with the last items of a delta or snapshot: its first message. Once they are applied, all
        that its sender knew at that time counts as known here, unless an item was left out.
        """
        left_out = self.count_left_out(items)
        # Also without items: this returns only after earlier updates, the tasks of which may have been cancelled.
        await self.sink.apply(self.replica.apply_remote(self._fitting(items), self.notice_pause()))
        if complete is None or left_out:
            return
        message, as_of_ms = complete.message, complete.as_of_ms
        if isinstance(message, Delta):
            self.membership.read(address, message.boot_id, message.uptime_ms, as_of_ms)
        else:
            self.membership.apply_summary(message.summary, as_of_ms, self.notice_pause())
            if len(self._synced_boots) >= SYNCED_BOOTS_LIMIT:
                self._synced_boots.clear()
            self._synced_boots.add(message.boot_id)
        self.sink.statuses_changed()

    def count_left_out(self, items: Sequence[Write | Tombstone]) -> int:
        """The number of ``items`` that `apply_remote` would leave out now, as there are too many pools."""
        return len(items) - len(self._fitting(items))

    def _fitting(self, items: Sequence[Write | Tombstone]) -> Sequence[Write | Tombstone]:
        room = self.settings.pools_limit - self.replica.live_count
        if room >= len(items):
            return items
        return [item for item in items if self.replica.knows(item.key) or (room := room - 1) >= 0]

    def needs_snapshot_of(self, boot_id: str, now_ms: int) -> bool:
        """Whether a snapshot of ``boot_id`` may have pools from before the start of this instance."""
        return boot_id not in self._synced_boots and not self.membership.is_warm(now_ms)

    def record_refused(self, address: str) -> None:
        """A connection to ``address`` was refused."""
        self.membership.refused(address, self.notice_pause())
        self.sink.statuses_changed()

    def record_failed(self, address: str, reason: SourceReason, detail: str) -> None:
        """A read of ``address`` failed in another way."""
        self.notice_pause()
        self.membership.failed(address, reason, detail)
        self.sink.statuses_changed()

    def record_resolved(self, name: str, addresses: frozenset[str], asked_ms: int) -> None:
        """``name`` was resolved by a query of ``asked_ms``."""
        self.membership.resolved(name, addresses, asked_ms, self.notice_pause())
        self.sink.statuses_changed()

    def record_resolver_failed(self, name: str, detail: str) -> None:
        """``name`` was not resolved. Its last addresses stay."""
        self.notice_pause()
        self.membership.resolver_failed(name, detail)
        self.sink.statuses_changed()
