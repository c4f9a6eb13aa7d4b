"""Machines in networks of their own, with addresses and resolvers of their own, and one router between them.

    async with Lan(tmp_path) as lan:
        one, two = await lan.machine(), await lan.machine()
        poolmuster("serve", "--listen", f"{one.address}:8080", prefix=one.prefix, ...)
        await lan.cut(one, two)

Each machine is a network namespace with one link to the router, which is another one. A cut is made there: packets
between two addresses are dropped without a word, as a broken network does. A machine's programs ask one resolver,
`Machine.asks`, which this process answers. This process reaches a machine by `Machine.connect`, whatever is cut.
"""

import asyncio
import contextlib
import itertools
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import msgspec

from tests.support.door import carry
from tests.support.listening import listening
from tests.support.name_server import NameServer
from tests.support.netns import PrivateNetwork

DNS_PORT = 53

_WITH_RESOLVER = 'mount --bind "$0" /etc/resolv.conf && mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"'

_WITH_UPTIME = """
import ctypes, os, sys
CLONE_NEWTIME = 0x80
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(CLONE_NEWTIME) == 0, os.strerror(ctypes.get_errno())
with open("/proc/self/timens_offsets", "w") as offsets:
    offsets.write(f"monotonic {sys.argv[1]} 0\\nboottime {sys.argv[1]} 0\\n")
with open("/proc/self/ns/time_for_children") as namespace:
    assert libc.setns(namespace.fileno(), CLONE_NEWTIME) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[2], sys.argv[2:])
"""


def up_longer(duration_s: int) -> tuple[str, ...]:
    """What to put before a command so that its monotonic clock is ``duration_s`` ahead, really: a time namespace."""
    return (sys.executable, "-c", _WITH_UPTIME, str(duration_s))


class Traffic(msgspec.Struct, frozen=True):
    """What has gone over a machine's link, packets' heads included."""

    received_bytes: int
    sent_bytes: int


class Machine:
    """One machine. ``address`` is what others reach it by; ``inner`` is another, for what stands behind a proxy."""

    def __init__(self, number: int, network: PrivateNetwork, folder: Path) -> None:
        self.address = f"10.77.{number}.2"
        self.inner = f"10.77.{number}.3"
        self.address_6 = f"fd77:{number}::2"
        self.asks = NameServer()
        self.network = network
        self._resolver = folder / f"resolv-{number}.conf"
        self._switch = folder / f"nsswitch-{number}.conf"
        self._resolver.write_text("nameserver 127.0.0.1\n")
        self._switch.write_text("hosts: dns\n")

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command so that it runs on this machine, with its resolver."""
        files = (str(self._resolver), str(self._switch))
        return (*self.network.prefix, "unshare", "--mount", "sh", "-c", _WITH_RESOLVER, *files)

    def listener(self, port: int, address: str | None = None) -> socket.socket:
        """A listening socket of this process on the machine, at ``address`` where it is not the machine's own."""
        made = self.network.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address or self.address, port))
        made.listen()
        return made

    async def connect(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection from this machine. Raises `OSError`."""
        made = self.network.socket(family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            await asyncio.get_running_loop().sock_connect(made, (address, port))
            return await asyncio.open_connection(sock=made)
        except BaseException:
            made.close()
            raise

    @contextlib.asynccontextmanager
    async def door(self, port: int, address: str | None = None) -> AsyncIterator[str]:
        """An HTTP URL here that leads to ``port`` there, over nothing that can be cut."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                inner_reader, inner_writer = await self.connect(address or self.address, port)
            except OSError:
                writer.transport.abort()
                return
            try:
                await asyncio.gather(carry(reader, inner_writer), carry(inner_reader, writer))
            finally:
                inner_writer.transport.abort()

        async with listening(serve) as url:
            yield url

    def traffic(self) -> Traffic:
        """What its link has carried so far."""
        for line in Path(f"/proc/{self.network.pid}/net/dev").read_text().splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == "eth0":
                fields = numbers.split()
                return Traffic(int(fields[0]), int(fields[8]))
        raise AssertionError("the machine has no link")


class Lan:
    """All of it. Needs root (`tests.support.parts.LAN`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._router = PrivateNetwork(folder)
        self._stack = contextlib.AsyncExitStack()
        self._cuts: set[frozenset[str]] = set()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self._stack.enter_async_context(self._router)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def machine(self) -> Machine:
        """One more machine, linked to all others."""
        number = next(self._numbers)
        network = await self._stack.enter_async_context(PrivateNetwork(self._folder))
        machine = Machine(number, network, self._folder)
        await _ip(
            self._router,
            f"link add name m{number} type veth peer name eth0 netns {network.pid}",
            f"addr add 10.77.{number}.1/24 dev m{number}",
            f"addr add fd77:{number}::1/64 dev m{number} nodad",
            f"link set m{number} up",
        )
        await _ip(
            network,
            f"addr add {machine.address}/24 dev eth0",
            f"addr add {machine.inner}/24 dev eth0",
            f"addr add {machine.address_6}/64 dev eth0 nodad",
            "link set eth0 up",
            f"route add default via 10.77.{number}.1",
            f"route add default via fd77:{number}::1",
        )
        if number == 1:
            await _forward(self._router)
        resolver = network.socket(socket.SOCK_DGRAM)
        resolver.bind(("127.0.0.1", DNS_PORT))
        await self._stack.enter_async_context(machine.asks.serving(resolver))
        return machine

    async def cut(self, one: Machine, two: Machine) -> None:
        """From now on nothing gets from one to the other, and nobody is told."""
        if (pair := _pair(one, two)) not in self._cuts:
            self._cuts.add(pair)
            await _ip(self._router, *(f"rule add {way}" for way in _ways(one, two)))

    async def heal(self, one: Machine, two: Machine) -> None:
        """Undo the cut."""
        if (pair := _pair(one, two)) in self._cuts:
            self._cuts.remove(pair)
            await _ip(self._router, *(f"rule del {way}" for way in _ways(one, two)))


def _pair(one: Machine, two: Machine) -> frozenset[str]:
    return frozenset((one.address, two.address))


def _ways(one: Machine, two: Machine) -> tuple[str, ...]:
    return tuple(f"from {a.address} to {b.address} blackhole" for a, b in ((one, two), (two, one)))


async def _ip(network: PrivateNetwork, *commands: str) -> None:
    await _run(network, ("ip", "-batch", "-"), "\n".join(commands))


async def _forward(router: PrivateNetwork) -> None:
    switches = ("ipv4/ip_forward", "ipv6/conf/all/forwarding")
    await _run(router, ("sh", "-ec", "".join(f"echo 1 >/proc/sys/net/{name};" for name in switches)), "")


async def _run(network: PrivateNetwork, command: tuple[str, ...], given: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *network.prefix, *command, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate(given.encode())
    assert process.returncode == 0, f"{' '.join(command)} failed: {said.decode()}"
