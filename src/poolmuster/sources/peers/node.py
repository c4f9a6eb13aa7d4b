"""The node: what is registered here, received from peers and found out about them, on this instance's clock."""

from collections.abc import Callable, Sequence

import msgspec

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Pool, Registration
from poolmuster.ports.clock import LeaseClock
from poolmuster.ports.source import Sink
from poolmuster.registry.updates import SourceUpdate
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.membership import Membership
from poolmuster.replication.messages import SyncSummary
from poolmuster.replication.replica import Replica
from poolmuster.sources.peers.dns import ServiceName


class PeerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the peers, and how many instances there are to be (0: any number).

    The last two bound what is held of peers: pools in all, and bytes of each peer's. Both are twice what an instance
    accepts itself: several that are nearly full may each accept a pool at once.
    """

    names: tuple[ServiceName, ...]
    policy: LeasePolicy
    expect: int = 0
    pools_limit: int = 40_000
    bytes_limit: int = 512 * 1024 * 1024


class Node:
    """Puts `Replica` and `Membership` together for one boot. Both are changed through the methods here alone."""

    def __init__(self, lease_clock: LeaseClock, boot_id: str, settings: PeerSettings) -> None:
        now_ms, policy = lease_clock.notice_pause(), settings.policy
        self._lease_clock = lease_clock
        self.settings = settings
        self.boot_id = boot_id
        self.started_ms = now_ms
        self.replica = Replica(boot_id, policy.duration_ms)
        self.membership = Membership(
            boot_id=boot_id,
            names=tuple(map(str, settings.names)),
            policy=policy,
            now_ms=now_ms,
            expect=settings.expect,
        )
        self._sink: Sink | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when something was registered or deregistered here that peers need at once."""
        lease_clock.subscribe(self.replica.paused)
        lease_clock.subscribe(self.membership.paused)

    def connect(self, sink: Sink) -> None:
        """Send updates to ``sink`` from here on."""
        self._sink = sink

    @property
    def sink(self) -> Sink:
        assert self._sink is not None, "a store is run before it is used"
        return self._sink

    def notice_pause(self) -> int:
        """The monotonic time; a pause that nothing noticed yet takes effect first."""
        return self._lease_clock.notice_pause()

    def uptime_ms(self, now_ms: int) -> int:
        """How long this boot has been up."""
        return now_ms - self.started_ms

    async def put(self, registration: Registration) -> None:
        """Store or renew a registration made with this instance. Raises `RelayDeregistered`."""
        await self._apply(self.replica.put(registration, self.notice_pause()))

    async def deregister(self, deregistration: PoolDeregistration) -> None:
        """Deregister, if that acts."""
        if (update := self.replica.deregister(deregistration, self.notice_pause())) is not None:
            await self._apply(update)

    async def _apply(self, update: SourceUpdate[PoolKey, Pool]) -> None:
        log = self.replica.log
        changed = log.last_change_seq == log.seq
        await self.sink.apply(update)
        if changed:
            self.on_change()

    async def apply_remote(self, items: Sequence[Write | Tombstone], now_ms: int) -> int:
        """Apply what a peer sent. Returns how many items were left out, as there are too many pools already."""
        taken = items
        room = self.settings.pools_limit - self.replica.live_count
        if room < len(items):
            taken = []
            for item in items:
                if self.replica.knows(_key_of(item)):
                    taken.append(item)
                elif room > 0:
                    room -= 1
                    taken.append(item)
        await self.sink.apply(self.replica.apply_remote(taken, now_ms))
        return len(items) - len(taken)

    def changed(self) -> None:
        """The membership changed."""
        self.sink.statuses_changed()

    def summary(self, now_ms: int) -> SyncSummary:
        """How far the list of this instance is complete, for peers."""
        return self.membership.summary(now_ms)


def _key_of(item: Write | Tombstone) -> PoolKey:
    return item.deregistration.key if isinstance(item, Tombstone) else item.registration.key
