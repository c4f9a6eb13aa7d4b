"""Instances that share registrations, as processes on machines of their own, behind one name that a test controls."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.support.instances import Server, eventually
from tests.support.lan import Lan, Machine
from tests.support.parts import LAN
from tests.support.process import Program, poolmuster

NAME = "peers.test"
PORT, HEALTH_PORT = 8080, 8081
LEASE_S, HEARTBEAT_S = 3.0, 1.0

INCOMPLETE_WITHIN_S = 3.0
HEALED_WITHIN_S = 2.0
FOLLOWED_WITHIN_S = 2.0
TOLD_WITHIN_S = 0.1
"""What is promised, on an idle machine."""

MARGIN = 3.0
"""On real parts each bound is held three times over: a machine under load is slow."""

STARTED_WITHIN_S = 20.0


class RawList(msgspec.Struct):
    """A list as it came."""

    pools: msgspec.Raw
    complete: bool


class Guard(msgspec.Struct, frozen=True):
    """What an instance that wants credentials is given, and what the test shows it."""

    flags: tuple[str, ...]
    token: str
    trust: ssl.SSLContext | None = None


class Peer(Server):
    """One instance on its machine."""

    def __init__(self, program: Program, url: str, machine: Machine, guard: Guard | None) -> None:
        self.program = program
        self.url = url
        self.machine = machine
        self.session = aiohttp.ClientSession(
            url,
            timeout=aiohttp.ClientTimeout(total=10),
            headers={} if guard is None else {"Authorization": f"Bearer {guard.token}"},
            connector=aiohttp.TCPConnector(ssl=True if guard is None or guard.trust is None else guard.trust),
        )

    async def raw_list(self) -> RawList:
        async with self.session.get("/pools") as answer:
            return msgspec.json.decode(await answer.read(), type=RawList)

    async def complete(self) -> bool:
        return (await self.pools())[1]

    async def lists(self, *names: str) -> bool:
        """Whether it lists these pools and knows that they are all."""
        return await self.pools() == (sorted(names), True)

    async def sources_of(self, kind: str) -> list[dict[str, Any]]:
        """Its sources of a kind."""
        return [source for source in (await self.get("/status"))[1]["sources"] if source["kind"] == kind]

    async def reason_of(self, other: "Peer | Machine") -> str | None:
        """Why the source of another's address is not fresh; ``None`` where it is, or does not count."""
        address = (other.machine if isinstance(other, Peer) else other).address
        found = [source for source in await self.sources_of("peer") if address in source["name"]]
        assert len(found) <= 1, found
        return found[0]["reason"] if found else None

    async def reads(self, other: "Peer") -> bool:
        """Whether the other is a fresh source."""
        found = [source for source in await self.sources_of("peer") if other.machine.address in source["name"]]
        return [source["state"] for source in found] == ["fresh"]


class Cluster:
    """Machines, and instances that are started and named on them one by one. `peers` are all that were started."""

    def __init__(self, folder: Path, lan: Lan, stack: contextlib.AsyncExitStack, lease_s: float) -> None:
        self.lan = lan
        self.lease_s = lease_s
        self.peers: list[Peer] = []
        self.machines: list[Machine] = []
        self._folder = folder
        self._stack = stack
        self._named: list[str] = []

    async def machine(self) -> Machine:
        """A machine without an instance yet."""
        machine = await self.lan.machine()
        machine.asks.records[NAME] = self._named
        self.machines.append(machine)
        return machine

    def name(self, *addresses: str) -> None:
        """From now on the name has these addresses, on all machines."""
        self._named[:] = addresses

    async def start(
        self,
        machine: Machine,
        *flags: str,
        address: str | None = None,
        before: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        guard: Guard | None = None,
    ) -> Peer:
        """An instance on ``machine``, answering. ``before`` precedes its command, ``address`` is what it serves on."""
        url = ready = await self._stack.enter_async_context(machine.door(PORT, address))
        if guard is not None:
            ready = await self._stack.enter_async_context(machine.door(HEALTH_PORT))
            url = url if guard.trust is None else url.replace("http:", "https:")
            flags = ("--health-listen", f"{machine.address}:{HEALTH_PORT}", *guard.flags, *flags)
        program = poolmuster(
            "serve",
            *("--listen", _with_port(address or machine.address), "--peer-service", f"{NAME}:{PORT}"),
            *("--lease-duration-secs", str(self.lease_s), "--heartbeat-interval-secs", str(HEARTBEAT_S)),
            *(("--allow-anonymous",) if guard is None else ()),
            *flags,
            folder=self._folder / machine.address,
            env=env,
            prefix=(*machine.prefix, *before),
            ready_url=f"{ready}/health/live",
            ready_timeout_s=STARTED_WITHIN_S * 2,
        )
        peer = Peer(program, url, machine, guard)
        self._stack.push_async_callback(peer.session.close)
        self._stack.push_async_callback(program.reap)
        self.peers.append(peer)
        await program.start()
        return peer

    async def started(self, count: int, *flags: str) -> list[Peer]:
        """So many instances behind the name, which may not be complete yet."""
        machines = [await self.machine() for _ in range(count)]
        self.name(*(machine.address for machine in machines))
        return list(await asyncio.gather(*(self.start(machine, *flags) for machine in machines)))

    async def agreed(self, peers: Iterable[Peer], *names: str, timeout_s: float | None = None) -> float:
        """Wait until all of them list these pools and know it, and return how long that took, in seconds."""

        async def holds() -> bool:
            with contextlib.suppress(aiohttp.ClientError):  # one that was killed may not be back yet
                return all(await asyncio.gather(*(peer.lists(*names) for peer in peers)))
            return False

        return await eventually(holds, self.lease_s * MARGIN + STARTED_WITHIN_S if timeout_s is None else timeout_s)

    async def split(self, ones: Iterable[Peer], others: Iterable[Peer]) -> None:
        """Nothing gets from either half to the other."""
        others = tuple(others)
        for one in ones:
            for other in others:
                await self.lan.cut(one.machine, other.machine)

    async def heal(self) -> None:
        """Undo all cuts."""
        for place, one in enumerate(self.machines):
            for other in self.machines[:place]:
                await self.lan.heal(one, other)


def _with_port(address: str) -> str:
    return f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"


@contextlib.asynccontextmanager
async def cluster(folder: Path, lease_s: float = LEASE_S) -> AsyncIterator[Cluster]:
    """A network with nothing in it yet; the test is left out where there can be none."""
    LAN.require()
    async with Lan(folder) as lan, contextlib.AsyncExitStack() as stack:
        yield Cluster(folder, lan, stack, lease_s)


@contextlib.asynccontextmanager
async def peers(folder: Path, count: int, *flags: str, lease_s: float = LEASE_S) -> AsyncIterator[Cluster]:
    """So many instances that are all complete."""
    async with cluster(folder, lease_s) as found:
        await found.started(count, *flags)
        await found.agreed(found.peers)
        yield found
