"""The ledger: the one place where what was registered here, heard and found out comes together, on this clock.

Whatever runs after a pause of the process notices the pause first (rule L5).
"""

from collections.abc import Callable, Sequence

import msgspec

from poolmuster.model.change import Deregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Registration
from poolmuster.model.source import SourceInfo, is_complete
from poolmuster.ports.clock import Clock
from poolmuster.ports.store import StoreObserver
from poolmuster.registry.pauses import TICK_MS, PauseDetector
from poolmuster.registry.updates import SourceUpdate
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.membership import Membership
from poolmuster.replication.messages import SyncSummary
from poolmuster.replication.replica import Replica
from poolmuster.sources.peers.dns import ServiceName

SOURCES_KEPT_MS = 50
"""How long they are taken to be fresh without a look: every answer of the service asks, and they are a dozen."""


class PeerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance with peers is told: their names, its leases, how many instances there are to be (0: any number).

    The last two bound what is held of what peers say: pools in all, and bytes of each peer's. Both are to be twice what
    an instance takes itself: several that are nearly full may each let somebody in at once.
    """

    names: tuple[ServiceName, ...]
    lease_ms: int
    slack_ms: int
    expect: int = 0
    pools_limit: int = 40_000
    bytes_limit: int = 512 * 1024 * 1024


class Node:
    """Puts `Replica` and `Membership` together for one boot. `circle` is changed through the methods here alone."""

    def __init__(self, clock: Clock, boot_id: str, terms: PeerSettings) -> None:
        now_ms = clock.monotonic_ms()
        self._clock = clock
        self.settings = terms
        self.boot_id = boot_id
        self.started_ms = now_ms
        self.replica = Replica(boot_id, terms.lease_ms)
        self.membership = Membership(
            boot_id=boot_id,
            names=tuple(map(str, terms.names)),
            lease_ms=terms.lease_ms,
            slack_ms=terms.slack_ms,
            now_ms=now_ms,
            expect=terms.expect,
        )
        self._forgotten_ms = now_ms
        self._pauses = PauseDetector(now_ms)
        self._observer: StoreObserver | None = None
        self._sources: tuple[SourceInfo, ...] = ()
        self._sources_ms: int | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when something happened here that peers should hear of at once."""

    def attach(self, observer: StoreObserver) -> None:
        self._observer = observer

    @property
    def observer(self) -> StoreObserver:
        """Who is told."""
        assert self._observer is not None, "a store is attached before it is used"
        return self._observer

    @property
    def uptime_ms(self) -> int:
        """How long this boot has been up."""
        return self._clock.monotonic_ms() - self.started_ms

    def notice_pause(self) -> int:
        """The time now, once a pause that nobody noticed yet is accounted for."""
        now_ms = self._clock.monotonic_ms()
        self._pause(now_ms, self._pauses.check(now_ms))
        return now_ms

    def changed(self) -> None:
        """The circle changed: sources are to be looked at anew."""
        self._sources_ms = None

    def _pause(self, now_ms: int, credit_ms: int) -> None:
        if credit_ms:
            self.replica.paused(now_ms, credit_ms)
            self.membership.paused(now_ms, credit_ms)
            self.observer.observe(SourceUpdate(started_ms=now_ms, credit_ms=credit_ms, expire=False))
            self.changed()

    def put(self, registration: Registration) -> None:
        """Take a registration. Raises `RelayDeregistered`."""
        self._apply(self.replica.put(registration, self.notice_pause()))

    def deregister(self, departure: Deregistration) -> None:
        """Take a deregistration, if it acts."""
        if (update := self.replica.deregister(departure, self.notice_pause())) is not None:
            self._apply(update)

    def _apply(self, update: SourceUpdate) -> None:
        self.observer.observe(update)
        replication_log = self.replica.log
        if replication_log.last_change_seq == replication_log.seq:
            self.on_change()

    def apply_remote(self, said: Sequence[Write | Tombstone], now_ms: int) -> int:
        """Take in what peers said. Returns how much was left out, as there are too many pools already."""
        heard = said
        room = self.settings.pools_limit - self.replica.live_count
        if room < len(said):
            heard = []
            for each in said:
                if self.replica.knows(_key_of(each)):
                    heard.append(each)
                elif room > 0:
                    room -= 1
                    heard.append(each)
        self.observer.observe(self.replica.apply_remote(heard, now_ms))
        return len(said) - len(heard)

    def tick(self) -> int:
        """What the timer does, and it alone: leases end, what is over is forgotten. Returns the time."""
        now_ms = self._clock.monotonic_ms()
        self._pause(now_ms, self._pauses.tick(now_ms))
        self.observer.observe(SourceUpdate(started_ms=now_ms))
        if now_ms - self._forgotten_ms >= TICK_MS:
            # Not with every end of a lease: it looks at a thousand pools, most of which go on.
            self._forgotten_ms = now_ms
            self.replica.evict(now_ms)
        return now_ms

    def summary(self, now_ms: int) -> SyncSummary:
        """How far the list here can be trusted."""
        return self.membership.summary(now_ms)

    def sources(self, now_ms: int) -> tuple[SourceInfo, ...]:
        """Every source of the list; the same object for as long as nothing is new."""
        if self._pauses.is_overdue(now_ms):
            self.notice_pause()
        if self._sources_ms is None or not 0 <= now_ms - self._sources_ms < SOURCES_KEPT_MS:
            found = self.membership.sources(now_ms, self._clock.wall_ms())
            # What is not fresh is looked at each time: it says how long it will be so.
            self._sources_ms = now_ms if is_complete(found) else None
            if found != self._sources:
                self._sources = found
        return self._sources


def _key_of(said: Write | Tombstone) -> PoolKey:
    return said.deregistration.key if isinstance(said, Tombstone) else said.registration.key
