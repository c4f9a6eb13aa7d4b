"""One instance of a simulated cluster: the pure parts, put together as the real adapter does, without a socket."""

from typing import TYPE_CHECKING

import msgspec

from poolmuster.model.change import ChangeKind, PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool, Registration
from poolmuster.model.source import SourceReason
from poolmuster.platform.clock import TickingLeaseClock
from poolmuster.registry.leases import LeaseEvent, LeaseTable
from poolmuster.replication.decoder import DeltaDecoder, OutOfSync, decode_snapshot
from poolmuster.replication.membership import Membership
from poolmuster.replication.messages import Delta, Snapshot, SyncSummary
from poolmuster.replication.replica import Replica
from tests.support.leases import PoolLeases, PoolUpdate, apply
from tests.support.replication import delta_entries, snapshot_entries

if TYPE_CHECKING:
    from tests.support.peer_world import Host, Link, World

LEASE_MS = 15_000
SLACK_MS = 10_000
SILENT_MS = 3_000
RETRY_MS = 250
POLL_MS = 1_000
PING_MS = 500
NAME = "peers.test"


def membership(boot_id: str, now_ms: int) -> Membership:
    """The rule of completeness."""
    return Membership(boot_id=boot_id, names=(NAME,), lease_ms=LEASE_MS, slack_ms=SLACK_MS, now_ms=now_ms)


class Instance:
    """One boot. ``careless``: it never gives a silent connection up, so messages may come very late."""

    def __init__(self, world: "World", host: "Host", boot_id: str, *, polls: bool, careless: bool) -> None:
        now_ms = host.clock_ms()
        self.world, self.host, self.boot_id, self.polls, self.careless = world, host, boot_id, polls, careless
        self.started_ms = now_ms
        self.alive = True
        self.replica = Replica(boot_id, LEASE_MS)
        self.membership = world.rule(boot_id, now_ms)
        self.leases: PoolLeases = LeaseTable()
        self.lease_clock = TickingLeaseClock(host.clock_ms)
        self.lease_clock.subscribe(self._paused)
        self.links: dict[str, Link] = {}
        self.wholes: dict[str, Link] = {}
        self.tried_ms: dict[str, int] = {}
        self.asked_ms: dict[str, int] = {}
        self.taken_whole: set[str] = set()
        self.feeds: dict[str, DeltaDecoder] = {}
        self.statements: dict[str, tuple[SyncSummary, int]] = {}
        self.served: list[Link] = []
        self.events: list[tuple[int, ChangeKind, PoolKey]] = []
        self.gone_ids: set[str | None] = set()
        self.pauses: list[tuple[int, int]] = []
        self._resolved_ms = now_ms - 10_000

    def now_ms(self) -> int:
        return self.host.clock_ms()

    # What the store of the service does.

    def wake(self) -> int:
        """Whatever runs after a pause notices it first (rule L5)."""
        return self.lease_clock.notice_pause()

    def _paused(self, ended_ms: int, length_ms: int) -> None:
        self.pauses.append((self.world.now_ms - length_ms, length_ms))
        self.leases.credit(length_ms)
        self.replica.paused(ended_ms, length_ms)
        self.membership.paused(ended_ms, length_ms)

    def put(self, registration: Registration) -> None:
        self.observe(self.replica.put(registration, self.wake()))
        self._serve()

    def leave(self, deregistration: PoolDeregistration) -> bool:
        reading = self.replica.deregister(deregistration, self.wake())
        if reading is not None:
            self.observe(reading)
            self._serve()
        return reading is not None

    def observe(self, reading: PoolUpdate) -> None:
        self._record(apply(self.leases, reading))
        for deregistration in reading.deregistrations:
            self.gone_ids.add(deregistration.relay_id)
        self.gone_ids.discard(None)

    def _record(self, events: list[LeaseEvent[Pool]]) -> None:
        for step in events:
            pool = step.after or step.before
            assert pool is not None
            self.events.append((self.world.now_ms, step.kind, pool.key))
            entry = self.leases.get(pool.key)
            if entry is not None and entry.relay_id in self.gone_ids:
                raise AssertionError(f"{pool.key} came back at {self.boot_id}")

    @property
    def complete(self) -> bool:
        return all(status.is_fresh for status in self.membership.statuses(self.now_ms()))

    @property
    def troubles(self) -> list[str]:
        statuses = self.membership.statuses(self.now_ms())
        return [f"{each.name}: {each.reason}" for each in statuses if not each.is_fresh]

    @property
    def pools(self) -> bytes:
        entries = [self.leases.get(key) for key in sorted(self.leases._leases)]
        return b",".join(entry.record.body for entry in entries if entry is not None)

    # What its timer does.

    def tick(self) -> None:
        now_ms = self.lease_clock.tick()
        self._record(self.leases.expire(now_ms, 10_000))
        self.replica.evict(now_ms)
        if now_ms - self._resolved_ms >= POLL_MS:
            self._resolved_ms = now_ms
            if self.world.dns_works:
                self.membership.resolved(NAME, frozenset(self.world.named), now_ms, now_ms)
            else:
                self.membership.resolver_failed(NAME, "It fails.")
        for address in self.membership.addresses:
            self._tend(address, now_ms)
            self._tend_whole(address, now_ms)
        for link in [link for address, link in self.links.items() if address not in self.membership.addresses]:
            self._drop(link)
        self._serve(timer=True)

    def _tend(self, address: str, now_ms: int) -> None:
        link = self.links.get(address)
        if link is not None:
            patience_ms = 60_000 if self.careless and link.heard_ms is not None else SILENT_MS
            if now_ms - (link.heard_ms or link.opened_ms) > patience_ms:
                self.membership.failed(address, SourceReason.TIMEOUT, "It does not answer.")
                self._drop(link)
        account = self.membership.member(address)
        own = account is not None and account.own
        every_ms = POLL_MS if self.polls or own else RETRY_MS
        if address not in self.links and now_ms - self.tried_ms.get(address, now_ms - POLL_MS) >= every_ms:
            self.tried_ms[address] = now_ms
            self.links[address] = self.world.connect(self, address, stream=not (self.polls or own), whole=False)

    def _tend_whole(self, address: str, now_ms: int) -> None:
        """Each peer's whole list once at the start; later only where that makes this list complete."""
        link = self.wholes.get(address)
        if link is not None:
            if now_ms - link.opened_ms > SILENT_MS:
                self._drop(link)
            return
        account = self.membership.member(address)
        said = self.statements.get(address)
        if account is None or account.own or account.boot_id is None or said is None:
            return
        wanted = account.boot_id not in self.taken_whole and not self.membership.is_warm(now_ms)
        if not wanted:
            wanted = self.membership.needs_full_sync(now_ms) and self.membership.can_trust(*said)
        if wanted and now_ms - self.asked_ms.get(address, now_ms - POLL_MS) >= POLL_MS:
            self.asked_ms[address] = now_ms
            self.wholes[address] = self.world.connect(self, address, stream=False, whole=True)

    def _drop(self, link: "Link") -> None:
        link.closed = True
        for links in (self.links, self.wholes):
            if links.get(link.address) is link:
                del links[link.address]

    # What its sockets do.

    def refused(self, link: "Link") -> None:
        now_ms = self.wake()
        self._drop(link)
        self.membership.refused(link.address, now_ms)

    def ended(self, link: "Link") -> None:
        self.wake()
        self._drop(link)
        self.tried_ms[link.address] = self.now_ms() if not link.stream else 0

    def heard(self, link: "Link", message: bytes) -> None:
        now_ms = self.wake()
        if link.whole:
            self._heard_whole(link, msgspec.json.decode(message, type=Snapshot), now_ms)
            return
        batch = msgspec.json.decode(message, type=Delta)
        said_ms = link.transit.to_local_ms(batch.sent_ms, now_ms) if link.stream else link.opened_ms
        link.heard_ms = now_ms
        if batch.boot_id != self.boot_id:
            feed = self.feeds.get(link.address)
            if feed is None or feed.boot_id != batch.boot_id:
                feed = self.feeds[link.address] = DeltaDecoder(batch.boot_id)
            try:
                said = feed.decode(batch, said_ms)
            except OutOfSync as misread:
                feed.seq = misread.seq
                self._drop(link)
                return
            self.observe(self.replica.apply_remote(said, now_ms))
        self.membership.read(link.address, batch.boot_id, batch.uptime_ms, said_ms)
        self.statements[link.address] = (batch.summary, said_ms)
        if (heard := getattr(self.membership, "heard", None)) is not None:
            heard(link.address, batch.summary)

    def _heard_whole(self, link: "Link", whole: Snapshot, now_ms: int) -> None:
        said, skipped = decode_snapshot(whole.entries, whole.boot_id, link.opened_ms)
        assert not skipped
        self.observe(self.replica.apply_remote(said, now_ms))
        self.taken_whole.add(whole.boot_id)
        self.membership.apply_summary(whole.summary, link.opened_ms, now_ms)
        self._drop(link)

    def asked(self, link: "Link") -> None:
        """A request arrived at this instance."""
        self.wake()
        if link.whole:
            link.send(msgspec.json.encode(self._whole()))
            link.end()
            return
        link.sent_seq = link.after if link.after_boot == self.boot_id else 0
        self._say(link)
        if link.stream:
            self.served.append(link)
        else:
            link.end()

    def _serve(self, *, timer: bool = False) -> None:
        self.served = [link for link in self.served if not link.closed]
        for link in self.served:
            if link.sent_seq < self.replica.log.seq or (timer and self.now_ms() - link.sent_ms >= PING_MS):
                self._say(link)

    def _say(self, link: "Link") -> None:
        now_ms, replication_log = self.now_ms(), self.replica.log
        batch = Delta(
            boot_id=self.boot_id,
            uptime_ms=now_ms - self.started_ms,
            sent_ms=now_ms,
            after=link.sent_seq,
            seq=replication_log.seq,
            summary=self.membership.summary(now_ms),
            entries=delta_entries(replication_log, link.sent_seq, now_ms),
        )
        link.sent_seq, link.sent_ms = replication_log.seq, now_ms
        link.send(msgspec.json.encode(batch))

    def _whole(self) -> Snapshot:
        now_ms = self.now_ms()
        return Snapshot(
            boot_id=self.boot_id,
            uptime_ms=now_ms - self.started_ms,
            sent_ms=now_ms,
            summary=self.membership.summary(now_ms),
            entries=snapshot_entries(self.replica, now_ms),
        )
