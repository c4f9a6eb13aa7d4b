"""The store: registrations in memory, shared with the instances behind the peers' names."""

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec

from poolmuster.core.pauses import TICK_MS
from poolmuster.model.change import Departure
from poolmuster.model.registration import Registration
from poolmuster.model.source import Source, SourceKind
from poolmuster.ports.clock import Clock
from poolmuster.ports.store import StoreObserver
from poolmuster.storage.peers.ledger import Ledger, PeerTerms
from poolmuster.storage.peers.link import PeerLink
from poolmuster.storage.peers.names import PeerName
from poolmuster.storage.peers.network import PeerNetwork
from poolmuster.storage.peers.notes import PeerNotes, PeersTold
from poolmuster.storage.peers.reader import PeerPlace, PeerReader
from poolmuster.storage.peers.sharing import PeerSharing
from poolmuster.storage.peers.trouble import NameTrouble
from poolmuster.storage.peers.wholes import WholeLists
from poolmuster.storage.peers.within import within

RESOLVE_EVERY_MS = 1_000
RESOLVE_LIMIT_MS = 1_000


class Linked(msgspec.Struct):
    """A link that runs, to ``place``."""

    place: PeerPlace
    task: "asyncio.Task[None]"


class PeerStore:
    """`poolmuster.ports.store.RegistrationStore` of an instance that has peers."""

    name = "memory"

    def __init__(
        self, *, network: PeerNetwork, clock: Clock, boot_id: str, terms: PeerTerms, notes: PeerNotes | None = None
    ) -> None:
        self._network = network
        self._clock = clock
        self._names = {str(name): name for name in terms.names}
        self._notes = notes or PeerNotes()
        self._told = PeersTold()
        self._ledger = Ledger(clock, boot_id, terms)
        self.sharing = PeerSharing(self._ledger, clock, self._notes)
        """What peers read of this instance."""
        self._hosts: dict[str, dict[str, str]] = {}
        self._links: dict[str, Linked] = {}
        self._wholes = WholeLists(self._ledger, clock, self._notes, self._told)

        self._notes.watch_peers(self._states)

    def _states(self) -> Counter[str]:
        sources = self._ledger.sources(self._clock.monotonic_ms())
        return Counter(source.state.value for source in sources if source.kind is SourceKind.PEER)

    def __len__(self) -> int:
        return len(self._ledger.merging)

    def attach(self, observer: StoreObserver, on_trouble: Callable[[], None]) -> None:
        self._ledger.attach(observer)

    async def put(self, registration: Registration) -> None:
        self._ledger.put(registration)

    async def leave(self, departure: Departure) -> None:
        self._ledger.leave(departure)

    def sources(self, now_ms: int) -> tuple[Source, ...]:
        return self._ledger.sources(now_ms)

    async def run(self) -> None:
        async with self._network:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._tick())
                    for key, name in self._names.items():
                        group.create_task(self._resolve(key, name))
            finally:
                await self._end_links(tuple(self._links))

    async def _tick(self) -> None:
        while True:
            end_ms = self._ledger.observer.next_end_ms()
            wait_ms = TICK_MS if end_ms is None else min(TICK_MS, max(1, end_ms - self._clock.monotonic_ms()))
            await self._clock.sleep_ms(wait_ms)
            self.sharing.tick(self._ledger.tick())

    async def _resolve(self, key: str, name: PeerName) -> None:
        while True:
            asked_ms = self._clock.monotonic_ms()
            await self._resolve_once(key, name, asked_ms)
            await self._tend_links()
            await self._clock.sleep_ms(max(0, asked_ms + RESOLVE_EVERY_MS - self._clock.monotonic_ms()))

    async def _resolve_once(self, key: str, name: PeerName, asked_ms: int) -> None:
        trouble = None
        try:
            addresses = await within(self._clock, RESOLVE_LIMIT_MS, self._network.resolve(name))
        except TimeoutError:
            trouble = "The resolver does not answer."
        except NameTrouble as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001
            # Nothing that a resolver does to us may end this instance.
            trouble = f"{type(error).__name__}: {error}"
        else:
            self._hosts[key] = dict.fromkeys(addresses, name.host.removesuffix("."))
            self._ledger.circle.resolved(key, addresses, asked_ms, self._ledger.wake())
        if trouble is not None:
            self._ledger.circle.resolver_failed(key, trouble)
        self._ledger.changed()
        self._notes.resolved(trouble is None)
        self._told.name(key, trouble)

    async def _tend_links(self) -> None:
        """One link to each address that counts, and no other."""
        hosts = {address: host for each in self._hosts.values() for address, host in each.items()}
        wanted: dict[str, PeerPlace] = {}
        for address in self._ledger.circle.addresses:
            known = self._links.get(address)
            host = hosts.get(address) or (known.place.host if known is not None else None)
            if host is not None:
                wanted[address] = PeerPlace(address, host)
        for address in self._links.keys() - wanted.keys():
            self._told.forget_peer(address)
        await self._end_links(
            tuple(
                address
                for address, linked in self._links.items()
                if wanted.get(address) != linked.place or linked.task.done()
            )
        )
        for address, place in wanted.items():
            if address not in self._links:
                self._links[address] = Linked(place, asyncio.create_task(self._run_link(place)))

    async def _run_link(self, place: PeerPlace) -> None:
        reader = PeerReader(place, self._ledger, self._network, self._clock, self._notes)
        link = PeerLink(reader, self._ledger, self._clock, self._notes, self._told, self._wholes)
        try:
            await link.run()
        except Exception as error:  # noqa: BLE001
            # An error of ours must not leave an address unread for ever: with the next resolution it begins anew.
            self._told.surprise(place.address, error)

    async def _end_links(self, addresses: tuple[str, ...]) -> None:
        tasks = []
        for address in addresses:
            task = self._links.pop(address).task
            task.cancel()
            tasks.append(task)
        await asyncio.gather(*tasks, return_exceptions=True)
