"""The store: registrations in memory, shared with the instances behind the peers' names."""

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
from poolmuster.sources.peers.dns import ServiceName
from poolmuster.sources.peers.errors import NameTrouble
from poolmuster.sources.peers.exporter import Exporter
from poolmuster.sources.peers.full_sync import FullSync
from poolmuster.sources.peers.instrumentation import PeerInstrumentation, PeerLog
from poolmuster.sources.peers.node import Node, PeerSettings
from poolmuster.sources.peers.reader import PeerAddress, PeerReader
from poolmuster.sources.peers.timeouts import timeout
from poolmuster.sources.peers.transport import PeerTransport

RESOLVE_EVERY_MS = 1_000
RESOLVE_LIMIT_MS = 1_000
TICK_MS = 250
"""How often what is over is evicted, and peers get renewals."""


class RunningConnection(msgspec.Struct):
    """A link that runs, to ``place``."""

    place: PeerAddress
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
        self._network = transport
        self._clock = clock
        self._names = {str(name): name for name in settings.names}
        self._instrumentation = instrumentation or PeerInstrumentation()
        self._peer_log = PeerLog()
        self._node = Node(lease_clock, boot_id, settings)
        self.replication_feed = Exporter(self._node, clock, self._instrumentation)
        """What peers read of this instance."""
        self._hosts: dict[str, dict[str, str]] = {}
        self._connections: dict[str, RunningConnection] = {}
        self._full_sync = FullSync(self._node, clock, self._instrumentation, self._peer_log)

        self._instrumentation.watch_peers(self._states)

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
        self._node.connect(sink)
        async with self._network:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._tick())
                    for key, name in self._names.items():
                        group.create_task(self._resolve(key, name))
            finally:
                await self._end_connections(tuple(self._connections))

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep_ms(TICK_MS)
            now_ms = self._clock.monotonic_ms()
            self._node.replica.evict(now_ms)
            self.replication_feed.tick(now_ms)

    async def _resolve(self, key: str, name: ServiceName) -> None:
        while True:
            asked_ms = self._clock.monotonic_ms()
            await self._resolve_once(key, name, asked_ms)
            await self._reconcile()
            await self._clock.sleep_ms(max(0, asked_ms + RESOLVE_EVERY_MS - self._clock.monotonic_ms()))

    async def _resolve_once(self, key: str, name: ServiceName, asked_ms: int) -> None:
        trouble = None
        try:
            addresses = await timeout(self._clock, RESOLVE_LIMIT_MS, self._network.resolve(name))
        except TimeoutError:
            trouble = "The resolver does not answer."
        except NameTrouble as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001
            # Nothing that a resolver does to us may end this instance.
            trouble = f"{type(error).__name__}: {error}"
        else:
            self._hosts[key] = dict.fromkeys(addresses, name.host.removesuffix("."))
            self._node.membership.resolved(key, addresses, asked_ms, self._node.notice_pause())
        if trouble is not None:
            self._node.membership.resolver_failed(key, trouble)
        self._node.changed()
        self._instrumentation.resolved(trouble is None)
        self._peer_log.name(key, trouble)

    async def _reconcile(self) -> None:
        """One link to each address that counts, and no other."""
        hosts = {address: host for each in self._hosts.values() for address, host in each.items()}
        wanted: dict[str, PeerAddress] = {}
        for address in self._node.membership.addresses:
            known = self._connections.get(address)
            host = hosts.get(address) or (known.place.host if known is not None else None)
            if host is not None:
                wanted[address] = PeerAddress(address, host)
        for address in self._connections.keys() - wanted.keys():
            self._peer_log.forget_peer(address)
        await self._end_connections(
            tuple(
                address
                for address, linked in self._connections.items()
                if wanted.get(address) != linked.place or linked.task.done()
            )
        )
        for address, place in wanted.items():
            if address not in self._connections:
                self._connections[address] = RunningConnection(place, asyncio.create_task(self._run_connection(place)))

    async def _run_connection(self, place: PeerAddress) -> None:
        reader = PeerReader(place, self._node, self._network, self._clock, self._instrumentation)
        link = PeerConnection(reader, self._node, self._clock, self._instrumentation, self._peer_log, self._full_sync)
        try:
            await link.run()
        except Exception as error:  # noqa: BLE001
            # An error of ours must not leave an address unread for ever: with the next resolution it begins anew.
            self._peer_log.unexpected(place.address, error)

    async def _end_connections(self, addresses: tuple[str, ...]) -> None:
        tasks = []
        for address in addresses:
            task = self._connections.pop(address).task
            task.cancel()
            tasks.append(task)
        await asyncio.gather(*tasks, return_exceptions=True)
