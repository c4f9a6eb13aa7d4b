"""One instance of a simulated cluster: the pure parts, put together as the real adapter does, without a socket."""

from typing import TYPE_CHECKING

import msgspec

from poolmuster.model.change import ChangeKind, PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Pool, Registration
from poolmuster.model.source import SourceReason
from poolmuster.platform.lease_clock import TickingLeaseClock
from poolmuster.registry.leases import LeaseEvent, LeaseTable
from poolmuster.replication.decoder import DeltaDecoder, OutOfSync, decode_snapshot
from poolmuster.replication.member import Member, MemberState
from poolmuster.replication.membership import Membership
from poolmuster.replication.messages import Delta, Snapshot, SyncSummary
from poolmuster.replication.replica import Replica
from tests.support.leases import PoolLeases, PoolUpdate, apply
from tests.support.replication import delta_entries, snapshot_entries

if TYPE_CHECKING:
    from tests.support.peer_world import Host, Link, World

LEASE_MS = 15_000
POLICY = LeasePolicy(duration_ms=LEASE_MS, heartbeat_ms=5_000)
IDLE_MS = 3_000
RETRY_MS = 250
POLL_MS = 1_000
PING_MS = 500
NAME = "peers.test"


def membership(boot_id: str, now_ms: int) -> Membership:
    """The rule of completeness."""
    return Membership(boot_id=boot_id, names=(NAME,), policy=POLICY, now_ms=now_ms)


class Instance:
    """One boot. ``careless``: it never closes a connection that has become idle, so messages may come very late."""

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
        self.sync_links: dict[str, Link] = {}
        self.tried_ms: dict[str, int] = {}
        self.sync_tried_ms: dict[str, int] = {}
        self.synced_boots: set[str] = set()
        self.decoders: dict[str, DeltaDecoder] = {}
        self.summaries: dict[str, tuple[SyncSummary, int]] = {}
        self.subscribers: list[Link] = []
        self.events: list[tuple[int, ChangeKind, PoolKey]] = []
        self.deregistered_ids: set[str | None] = set()
        self.pauses: list[tuple[int, int]] = []
        self._resolved_ms = now_ms - 10_000
        self._checked: dict[Member, int] = {}

    def now_ms(self) -> int:
        return self.host.clock_ms()

    def check_invariants(self) -> None:
        """Called by the world after every event of this instance."""
        self.membership.check_invariants(self.now_ms())
        before, self._checked = self._checked, {}
        for address in self.membership.addresses:
            member = self.membership.member(address)
            assert member is not None
            if member.state is not MemberState.UNREAD:
                self._checked[member] = member.synced_until_ms
                assert member.synced_until_ms >= before.get(member, member.synced_until_ms), "synced time was lost"

    # What the store of the service does.

    def notice_pause(self) -> int:
        """Whatever runs after a pause notices it first (rule L5). Every event but the timer's begins here."""
        self.world.reached.append(self)
        return self.lease_clock.notice_pause()

    def _paused(self, ended_ms: int, length_ms: int) -> None:
        self.pauses.append((self.world.now_ms - length_ms, length_ms))
        self.leases.credit(length_ms)
        self.replica.paused(ended_ms, length_ms)
        self.membership.paused(ended_ms, length_ms)

    def put(self, registration: Registration) -> None:
        self.apply(self.replica.put(registration, self.notice_pause()))
        self._send_due()

    def deregister(self, deregistration: PoolDeregistration) -> bool:
        update = self.replica.deregister(deregistration, self.notice_pause())
        if update is not None:
            self.apply(update)
            self._send_due()
        return update is not None

    def apply(self, update: PoolUpdate) -> None:
        self._record(apply(self.leases, update))
        for deregistration in update.deregistrations:
            self.deregistered_ids.add(deregistration.relay_id)
        self.deregistered_ids.discard(None)

    def _record(self, events: list[LeaseEvent[Pool]]) -> None:
        for event in events:
            pool = event.after or event.before
            assert pool is not None
            self.events.append((self.world.now_ms, event.kind, pool.key))
            lease = self.leases.get(pool.key)
            if lease is not None and lease.relay_id in self.deregistered_ids:
                raise AssertionError(f"{pool.key} came back at {self.boot_id}")

    @property
    def complete(self) -> bool:
        return all(status.is_fresh for status in self.membership.statuses(self.now_ms()))

    @property
    def problems(self) -> list[str]:
        statuses = self.membership.statuses(self.now_ms())
        return [f"{each.name}: {each.reason}" for each in statuses if not each.is_fresh]

    @property
    def pools(self) -> bytes:
        leases = [self.leases.get(key) for key in sorted(self.leases._leases)]
        return b",".join(lease.record.body for lease in leases if lease is not None)

    # What its timer does.

    def tick(self) -> None:
        self.world.reached.append(self)
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
            self._reconcile_link(address, now_ms)
            self._reconcile_sync_link(address, now_ms)
        for link in [link for address, link in self.links.items() if address not in self.membership.addresses]:
            self._drop(link)
        self._send_due(ping=True)

    def _reconcile_link(self, address: str, now_ms: int) -> None:
        link = self.links.get(address)
        if link is not None:
            patience_ms = 60_000 if self.careless and link.received_ms is not None else IDLE_MS
            if now_ms - (link.received_ms or link.opened_ms) > patience_ms:
                self.membership.failed(address, SourceReason.TIMEOUT, "It does not answer.")
                self._drop(link)
        member = self.membership.member(address)
        own = member is not None and member.own
        every_ms = POLL_MS if self.polls or own else RETRY_MS
        if address not in self.links and now_ms - self.tried_ms.get(address, now_ms - POLL_MS) >= every_ms:
            self.tried_ms[address] = now_ms
            self.links[address] = self.world.connect(self, address, stream=not (self.polls or own), snapshot=False)

    def _reconcile_sync_link(self, address: str, now_ms: int) -> None:
        """Each peer's snapshot once at the start; later only where that makes this list complete."""
        link = self.sync_links.get(address)
        if link is not None:
            if now_ms - link.opened_ms > IDLE_MS:
                self._drop(link)
            return
        member = self.membership.member(address)
        summary = self.summaries.get(address)
        if member is None or member.own or member.boot_id is None or summary is None:
            return
        wanted = member.boot_id not in self.synced_boots and not self.membership.is_warm(now_ms)
        if not wanted:
            wanted = self.membership.needs_full_sync(now_ms) and self.membership.can_trust(*summary)
        if wanted and now_ms - self.sync_tried_ms.get(address, now_ms - POLL_MS) >= POLL_MS:
            self.sync_tried_ms[address] = now_ms
            self.sync_links[address] = self.world.connect(self, address, stream=False, snapshot=True)

    def _drop(self, link: "Link") -> None:
        link.closed = True
        for links in (self.links, self.sync_links):
            if links.get(link.address) is link:
                del links[link.address]

    # What its sockets do.

    def refused(self, link: "Link") -> None:
        now_ms = self.notice_pause()
        self._drop(link)
        self.membership.refused(link.address, now_ms)

    def ended(self, link: "Link") -> None:
        self.notice_pause()
        self._drop(link)
        self.tried_ms[link.address] = self.now_ms() if not link.stream else 0

    def receive(self, link: "Link", message: bytes) -> None:
        now_ms = self.notice_pause()
        if link.snapshot:
            self._receive_snapshot(link, msgspec.json.decode(message, type=Snapshot), now_ms)
            return
        delta = msgspec.json.decode(message, type=Delta)
        as_of_ms = link.delay.to_local_ms(delta.sent_ms, now_ms) if link.stream else link.opened_ms
        link.received_ms = now_ms
        if delta.boot_id != self.boot_id:
            decoder = self.decoders.get(link.address)
            if decoder is None or decoder.boot_id != delta.boot_id:
                decoder = self.decoders[link.address] = DeltaDecoder(delta.boot_id)
            try:
                items = decoder.decode(delta, as_of_ms, 0 if link.stream else now_ms - as_of_ms)
            except OutOfSync as error:
                decoder.seq = error.seq
                self._drop(link)
                return
            self.apply(self.replica.apply_remote(items, now_ms))
        self.membership.read(link.address, delta.boot_id, delta.uptime_ms, as_of_ms)
        self.summaries[link.address] = (delta.summary, as_of_ms)
        if (receive_summary := getattr(self.membership, "receive_summary", None)) is not None:
            receive_summary(link.address, delta.summary)

    def _receive_snapshot(self, link: "Link", snapshot: Snapshot, now_ms: int) -> None:
        items, skipped = decode_snapshot(snapshot.entries, snapshot.boot_id, link.opened_ms, now_ms - link.opened_ms)
        assert not skipped
        self.apply(self.replica.apply_remote(items, now_ms))
        self.synced_boots.add(snapshot.boot_id)
        self.membership.apply_summary(snapshot.summary, link.opened_ms, now_ms)
        self._drop(link)

    def serve(self, link: "Link") -> None:
        """A request arrived at this instance."""
        self.notice_pause()
        if link.snapshot:
            link.send(msgspec.json.encode(self._snapshot()))
            link.end()
            return
        link.sent_seq = link.after if link.after_boot == self.boot_id else 0
        self._send_delta(link)
        if link.stream:
            self.subscribers.append(link)
        else:
            link.end()

    def _send_due(self, *, ping: bool = False) -> None:
        self.subscribers = [link for link in self.subscribers if not link.closed]
        for link in self.subscribers:
            if link.sent_seq < self.replica.log.seq or (ping and self.now_ms() - link.sent_ms >= PING_MS):
                self._send_delta(link)

    def _send_delta(self, link: "Link") -> None:
        now_ms, log = self.now_ms(), self.replica.log
        delta = Delta(
            boot_id=self.boot_id,
            uptime_ms=now_ms - self.started_ms,
            sent_ms=now_ms,
            after=link.sent_seq,
            seq=log.seq,
            summary=self.membership.summary(now_ms),
            entries=delta_entries(log, link.sent_seq, now_ms),
        )
        link.sent_seq, link.sent_ms = log.seq, now_ms
        link.send(msgspec.json.encode(delta))

    def _snapshot(self) -> Snapshot:
        now_ms = self.now_ms()
        return Snapshot(
            boot_id=self.boot_id,
            uptime_ms=now_ms - self.started_ms,
            sent_ms=now_ms,
            summary=self.membership.summary(now_ms),
            entries=snapshot_entries(self.replica, now_ms),
        )
