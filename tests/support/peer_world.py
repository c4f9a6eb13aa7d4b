"""A cluster of instances, relays and a network in one thread, on clocks that agree in nothing.

Time is the world's, in whole milliseconds; each machine's monotonic clock is hours off and drifts. A network that is
cut keeps what was sent and delivers it late, in order, unless a side has given the connection up.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from poolmuster.model.errors import RelayDeregistered
from poolmuster.replication.decoder import DelayEstimator
from poolmuster.replication.member import GAP_MS
from poolmuster.replication.membership import Membership
from tests.support.peer_instance import LEASE_MS, Instance, membership
from tests.support.registrations import deregistration, registration

TICK_MS = 100
HEARTBEAT_MS = 5_000
HOUR_MS = 3_600_000
VISIBLE_AFTER_MS = 3_500
"""The age from which a registration must be in every list that calls itself complete: a message may be 3 s old."""

UNREAD_MS = GAP_MS + 500
"""A registration that was accepted so shortly before its instance died, or left the name, may be lost.
The next heartbeat makes up for it."""


class Host:
    """A machine: its clock, its address, and the process on it, if one runs."""

    def __init__(self, world: "World", name: str, address: str) -> None:
        self._world = world
        self.name, self.address = name, address
        self._offset_ms = world.rng.randrange(-20, 20) * HOUR_MS + world.rng.randrange(1000)
        self._drift = world.rng.uniform(-2e-4, 2e-4)
        self.instance: Instance | None = None
        self.there = True
        """Whether the machine is there to refuse a connection."""
        self.stopped = False
        self._inbox: list[Callable[[], None]] = []

    def clock_ms(self) -> int:
        return 100 * HOUR_MS + self._offset_ms + int(self._world.now_ms * (1 + self._drift))

    def run(self, what: Callable[[], None]) -> None:
        """Do something in its process, once that is not stopped."""
        if self.stopped:
            self._inbox.append(what)
        else:
            what()

    def go_on(self) -> None:
        self.stopped = False
        inbox, self._inbox = self._inbox, []
        for what in inbox:
            what()


class Link:
    """One connection from an instance to an address."""

    def __init__(self, world: "World", client: Instance, address: str, *, stream: bool, snapshot: bool) -> None:
        self._world, self.client, self.address, self.stream, self.snapshot = world, client, address, stream, snapshot
        self.opened_ms = client.now_ms()
        self.received_ms: int | None = None
        self.delay = DelayEstimator()
        self.server: Host | None = None
        decoder = client.decoders.get(address)
        self.after_boot, self.after = (decoder.boot_id, decoder.seq) if decoder is not None else ("", 0)
        self.closed = False
        self.sent_seq = 0
        self.sent_ms = 0
        self._pending: list[tuple[int, Callable[[], None]]] = []
        self.held_until_ms = 0

    def send(self, message: bytes) -> None:
        self._queue(lambda: self.client.receive(self, message))

    def end(self) -> None:
        self._queue(lambda: self.client.ended(self))

    def _queue(self, what: Callable[[], None]) -> None:
        at_ms = self._world.now_ms + self._world.delay_ms()
        if self._pending:
            at_ms = max(at_ms, self._pending[-1][0])
        self._pending.append((at_ms, what))
        self._world.at(at_ms, self._flush)

    def _flush(self) -> None:
        """Deliver in order what is due and gets through."""
        world, server = self._world, self.server
        assert server is not None
        while self._pending and self._pending[0][0] <= world.now_ms:
            if (server.name, self.client.host.name) in world.cuts or self.held_until_ms > world.now_ms:
                world.at(world.now_ms + TICK_MS, self._flush)
                return
            _, what = self._pending.pop(0)
            self.client.host.run(partial(self._hand_over, what))

    def _hand_over(self, what: Callable[[], None]) -> None:
        if not self.closed and self.client.alive:
            what()


class Accepted(msgspec.Struct):
    """One registration that an instance accepted."""

    at_ms: int
    instance: Instance
    relay_id: str


class World:
    """The instances, the relays, and the network between them."""

    def __init__(self, seed: int, hosts: int = 3, rule: Callable[[str, int], Membership] = membership) -> None:
        self.rule = rule
        self.rng = random.Random(seed)
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self.cuts: set[tuple[str, str]] = set()
        self.named: set[str] = set()
        self.dns_works = True
        self.balanced: dict[str, list[Host]] = {}
        self.hosts = [Host(self, f"h{n}", f"10.0.0.{n}") for n in range(hosts)]
        self.accepted: dict[str, list[Accepted]] = {}
        self.deregistered: dict[str, list[tuple[int, str]]] = {}
        self.ended_ms: dict[str, int] = {}
        self.links: list[Link] = []
        self.slowest_ms = 40
        self.relays: list[Relay] = []
        self.reached: list[Instance] = []
        """The instances that the present event reached: their invariants are checked after it."""

    # Time.

    def at(self, at_ms: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._order), what))

    def run(self, for_ms: int) -> None:
        """Let time pass. Invariants are checked after every event, the lists at every tick."""
        for _ in range(for_ms // TICK_MS):
            end_ms = self.now_ms + TICK_MS
            while self._events and self._events[0][0] <= end_ms:
                at_ms, _, what = heapq.heappop(self._events)
                self.now_ms = max(self.now_ms, at_ms)
                what()
                self._check_invariants()
            self.now_ms = end_ms
            for instance in self.instances():
                instance.tick()
                self._check_invariants()
            self.check()

    def _check_invariants(self) -> None:
        for instance in self.reached:
            instance.check_invariants()
        self.reached.clear()

    def delay_ms(self) -> int:
        return self.rng.randint(1, self.slowest_ms)

    # Machines and processes.

    def instances(self, *, running: bool = True) -> list[Instance]:
        found = [host.instance for host in self.hosts if host.instance is not None]
        return [each for each in found if not (running and each.host.stopped)]

    def start(self, host: Host, *, polls: bool = False, careless: bool = False) -> Instance:
        boot_id = f"{host.name}b{next(self._numbers)}"
        host.instance = Instance(self, host, boot_id, polls=polls, careless=careless)
        self.named.add(host.address)
        return host.instance

    def kill(self, host: Host) -> None:
        instance, host.instance = host.instance, None
        if instance is None:
            return
        instance.alive = False
        host.stopped = False
        host._inbox.clear()
        self.ended_ms.setdefault(instance.boot_id, self.now_ms)
        for link in self.links:
            if link.server is host and not link.closed:
                link.end()

    def stop(self, host: Host) -> None:
        host.stopped = True

    def cut(self, one: Host, other: Host, *, both: bool = True) -> None:
        self.cuts.add((one.name, other.name))
        if both:
            self.cuts.add((other.name, one.name))

    def heal(self) -> None:
        self.cuts.clear()

    def hold(self, link: Link, for_ms: int) -> None:
        """What is sent on this connection arrives that much later."""
        link.held_until_ms = self.now_ms + for_ms

    def release(self) -> None:
        for link in self.links:
            link.held_until_ms = 0

    def unname(self, host: Host) -> None:
        """The name no longer has the host's address."""
        self.named.discard(host.address)
        if host.instance is not None:
            self.ended_ms.setdefault(host.instance.boot_id, self.now_ms)

    # The network.

    def connect(self, client: Instance, address: str, *, stream: bool, snapshot: bool) -> Link:
        link = Link(self, client, address, stream=stream, snapshot=snapshot)
        host = next((host for host in self.hosts if host.address == address), None)
        if address in self.balanced:
            host = self.rng.choice(self.balanced[address])
        self.links = [each for each in self.links if not each.closed]
        self.links.append(link)
        if host is not None:
            link.server = host
            self.at(self.now_ms + self.delay_ms(), lambda: self._arrive(link, host))
        return link

    def _arrive(self, link: Link, host: Host) -> None:
        """A connection arrives: it is accepted, refused, or nothing happens. TCP tries again while a cut lasts."""
        if link.closed or not host.there:
            return
        names = link.client.host.name, host.name
        if names in self.cuts or names[::-1] in self.cuts:
            self.at(self.now_ms + TICK_MS, lambda: self._arrive(link, host))
        elif (instance := host.instance) is None:
            self.at(
                self.now_ms + self.delay_ms(),
                lambda: link.client.host.run(
                    lambda: link.client.refused(link) if link.client.alive and not link.closed else None
                ),
            )
        else:
            host.run(lambda: instance.serve(link) if instance.alive and not link.closed else None)

    # The truth.

    def put(self, instance: Instance, name: str, relay_id: str, weight: int) -> bool:
        """A relay registers. Returns whether the instance accepts it."""
        try:
            instance.put(registration(name, relay_id, weight=weight))
        except RelayDeregistered:
            return False
        self.accepted.setdefault(name, []).append(Accepted(self.now_ms, instance, relay_id))
        return True

    def deregister(self, instance: Instance, name: str, relay_id: str) -> None:
        if instance.deregister(deregistration(name, relay_id)):
            self.deregistered.setdefault(name, []).append((self.now_ms, relay_id))

    def check(self) -> None:
        for instance in self.instances():
            listed = {pool_key.dgd_name for pool_key in instance.leases._leases}
            if instance.complete:
                missing = self.must_be_listed() - listed
                assert not missing, f"{self.now_ms}: {instance.boot_id} is complete without {sorted(missing)}"
            for name in listed:
                self._check_not_dead(instance, name)

    def must_be_listed(self) -> set[str]:
        return {name for name in self.accepted if any(self._is_due(name, each) for each in self._recent(name))}

    def _recent(self, name: str) -> Iterator[Accepted]:
        for accepted in reversed(self.accepted[name]):
            if accepted.at_ms <= self.now_ms - LEASE_MS + VISIBLE_AFTER_MS:
                return
            yield accepted

    def _is_due(self, name: str, accepted: Accepted) -> bool:
        if accepted.at_ms > self.now_ms - VISIBLE_AFTER_MS:
            return False
        ended_ms = self.ended_ms.get(accepted.instance.boot_id)
        if ended_ms is not None and ended_ms - accepted.at_ms < UNREAD_MS:
            return False
        return not any(at_ms >= accepted.at_ms for at_ms, _ in self.deregistered.get(name, []))

    def _check_not_dead(self, instance: Instance, name: str) -> None:
        """A pool stays one lease after its last renewal, pauses of this process left out."""
        last_ms = self.accepted[name][-1].at_ms
        paused_ms = sum(length_ms for ended_ms, length_ms in instance.pauses if ended_ms + length_ms > last_ms)
        silent_ms = self.now_ms - last_ms - paused_ms
        assert silent_ms <= LEASE_MS + TICK_MS + 3 * self.slowest_ms + 100, (
            f"{self.now_ms}: {instance.boot_id} lists {name}, silent for {silent_ms}"
        )


class Relay:
    """Registers one pool, at every heartbeat with the same instance or with any."""

    def __init__(self, world: World, name: str, *, hops: bool) -> None:
        self._world, self.name, self._hops = world, name, hops
        self._target: str | None = None
        self.relay_id = f"{name}-{next(world._numbers)}"
        self.weight = 1
        self.active = True
        self._busy = False
        world.relays.append(self)
        world.at(world.now_ms + world.rng.randint(1, HEARTBEAT_MS), self._beat)

    def kill(self) -> None:
        """SIGKILL."""
        self.active = False

    def terminate(self) -> None:
        """SIGTERM: it deregisters once no heartbeat is in flight, and sends nothing from then on."""
        self.active = False
        self._try_to_deregister(3)

    def _try_to_deregister(self, tries: int) -> None:
        world = self._world
        if self._busy:
            world.at(world.now_ms + TICK_MS, lambda: self._try_to_deregister(tries))
            return
        instance = self._choose()
        if instance is not None and not instance.host.stopped:
            world.deregister(instance, self.name, self.relay_id)
        elif tries:
            world.at(world.now_ms + 200, lambda: self._try_to_deregister(tries - 1))

    def _choose(self) -> Instance | None:
        world = self._world
        addresses = sorted(world.named)
        if not addresses:
            return None
        if self._hops or self._target not in addresses:
            self._target = world.rng.choice(addresses)
        host = next(host for host in world.hosts if host.address == self._target)
        return host.instance

    def _beat(self) -> None:
        if not self.active:
            return
        world = self._world
        instance = self._choose()
        if instance is None or instance.host.stopped:
            self._target = None
            world.at(world.now_ms + (200 if instance is None else 3_000), self._beat)
            return
        self._busy = True
        world.at(world.now_ms + world.delay_ms(), lambda: self._arrive(instance))
        world.at(world.now_ms + HEARTBEAT_MS - world.rng.randint(0, 300), self._beat)

    def _arrive(self, instance: Instance) -> None:
        self._busy = False
        if not instance.alive or instance.host.stopped:
            self._target = None
            return
        if not self._world.put(instance, self.name, self.relay_id, self.weight):
            self.relay_id = f"{self.name}-{next(self._world._numbers)}"
