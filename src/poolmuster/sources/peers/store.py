"""The registration store of an instance with peers: in memory, shared with the instances behind the peers' names."""

import asyncio
from collections import Counter

import msgspec

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.registration import Registration
from poolmuster.model.source import SourceKind
from poolmuster.ports.clock import Clock, LeaseClock
from poolmuster.ports.source import Sink
from poolmuster.ports.store import Expiry
from poolmuster.registry.source_status import SourceStatus
from poolmuster.sources.peers.connection import PeerConnection
from poolmuster.sources.peers.deadline import Deadline
from poolmuster.sources.peers.dns import ServiceName
from poolmuster.sources.peers.errors import ResolverError
from poolmuster.sources.peers.exporter import Exporter
from poolmuster.sources.peers.instrumentation import PeerInstrumentation, PeerLog
from poolmuster.sources.peers.node import Node, PeerSettings
from poolmuster.sources.peers.transport import PeerAddress, PeerTransport

RESOLVE_EVERY_MS = 1_000
RESOLVE_LIMIT_MS = 1_000
TICK_MS = 250
"""The interval of eviction, and of renewals to peers."""


class RunningConnection(msgspec.Struct):
    """A connection and the task that runs it."""

    connection: PeerConnection
    task: "asyncio.Task[None]"


class PeerStore:
    """`poolmuster.ports.store.RegistrationStore` of an instance that has peers."""

    expiry = Expiry.CONTINUOUS

    def __init__(
        self,
        *,
        transport: PeerTransport,
        clock: Clock,
        lease_clock: LeaseClock,
        boot_id: str,
        settings: PeerSettings,
        instrumentation: PeerInstrumentation | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._node = Node(lease_clock, boot_id, settings, instrumentation or PeerInstrumentation())
        self._peer_log = PeerLog(self._node.instrumentation)
        self.replication_feed = Exporter(self._node)
        """What peers read of this instance."""
        self._hosts: dict[ServiceName, dict[str, str]] = {}
        self._running: dict[str, RunningConnection] = {}
        self._node.instrumentation.watch_peers(self._states)

    def _states(self) -> Counter[str]:
        statuses = self._node.membership.statuses(self._clock.monotonic_ms())
        return Counter(status.state.value for status in statuses if status.kind is SourceKind.PEER)

    def __len__(self) -> int:
        return len(self._node.replica)

    async def put(self, registration: Registration) -> None:
        await self._node.put(registration)

    async def deregister(self, deregistration: PoolDeregistration) -> None:
        await self._node.deregister(deregistration)

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        return self._node.membership.statuses(now_ms)

    async def run(self, sink: Sink) -> None:
        self._node.sink = sink
        async with self._transport, asyncio.TaskGroup() as tasks:
            for name in dict.fromkeys(self._node.settings.names):
                tasks.create_task(self._resolve(name, tasks))
            try:
                await self._tick()
            finally:
                self._running.clear()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep_ms(TICK_MS)
            now_ms = self._clock.monotonic_ms()
            self._node.replica.evict(now_ms)
            self.replication_feed.tick(now_ms)

    async def _resolve(self, name: ServiceName, tasks: asyncio.TaskGroup) -> None:
        while True:
            asked_ms = self._clock.monotonic_ms()
            await self._resolve_once(name, asked_ms)
            self._reconcile(tasks)
            await self._clock.sleep_ms(max(0, asked_ms + RESOLVE_EVERY_MS - self._clock.monotonic_ms()))

    async def _resolve_once(self, name: ServiceName, asked_ms: int) -> None:
        problem = None
        try:
            async with Deadline(self._clock, RESOLVE_LIMIT_MS):
                addresses = await self._transport.resolve(name)
        except TimeoutError:
            problem = "The resolver does not answer."
        except ResolverError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001
            # No failure of a resolver may end this instance.
            problem = f"{type(error).__name__}: {error}"
        else:
            self._hosts[name] = dict.fromkeys(addresses, name.host.removesuffix("."))
            self._node.record_resolved(str(name), addresses, asked_ms)
        if problem is not None:
            self._node.record_resolver_failed(str(name), problem)
        self._peer_log.resolved(str(name), problem)

    def _reconcile(self, tasks: asyncio.TaskGroup) -> None:
        """Run one connection to each member, and no other; a failed one is started again."""
        hosts = {address: running.connection.peer.host for address, running in self._running.items()}
        for resolved in self._hosts.values():
            hosts.update(resolved)
        members = self._node.membership.addresses
        wanted = {address: PeerAddress(address, hosts[address]) for address in members if address in hosts}
        for address, running in list(self._running.items()):
            if running.connection.peer != wanted.get(address) or running.task.done():
                running.task.cancel()
                del self._running[address]
            if address not in wanted:
                self._peer_log.removed(address)
        for address, peer in wanted.items():
            if address not in self._running:
                connection = PeerConnection(
                    peer, self._node, self._transport, self._clock, self._peer_log, self._start_full_syncs
                )
                self._running[address] = RunningConnection(connection, tasks.create_task(self._run(connection)))

    async def _run(self, connection: PeerConnection) -> None:
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001
            # No error of this program may leave an address unread: the next resolution starts another connection.
            self._peer_log.unexpected(connection.peer.address, error)

    def _start_full_syncs(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._node.membership.needs_full_sync(now_ms):
            for running in self._running.values():
                if not running.task.done():
                    running.connection.start_full_sync_if_due(now_ms)
