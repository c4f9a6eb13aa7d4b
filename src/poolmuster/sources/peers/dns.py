"""Names to addresses, by the system's resolver: each family asked for by itself, each question within a second.

A question that hangs goes on in its thread, as nothing can stop it. So there are only so many at once of each name:
while all of them hang, no more are asked.
"""

import asyncio
import socket
import threading
from typing import NamedTuple

from poolmuster.model.address import Address
from poolmuster.platform.threads import run_in_daemon_thread
from poolmuster.sources.peers.errors import NameTrouble

LOOKUPS_LIMIT = 8
"""Questions at once, of one name and family."""

ADDRESSES_LIMIT = 100
"""Instances behind one name."""

FAMILIES = (socket.AF_INET, socket.AF_INET6)
_NO_RECORDS = frozenset(
    {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None), getattr(socket, "EAI_ADDRFAMILY", None)}
)


class ServiceName(NamedTuple):
    """What ``--peer-service`` names: ``host`` is what certificates must be for."""

    host: str
    port: int

    def __str__(self) -> str:
        return str(Address(self.host, self.port))


class SystemResolver:
    """Resolves names. The addresses are written as `poolmuster.model.address.Address` is."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, socket.AddressFamily], threading.Semaphore] = {}

    async def resolve(self, name: ServiceName) -> frozenset[str]:
        """The addresses behind ``name``, none where it has no records. Raises `NameTrouble`."""
        found = await asyncio.gather(*(self._of_family(name, family) for family in FAMILIES))
        addresses = frozenset[str]().union(*found)
        if len(addresses) > ADDRESSES_LIMIT:
            raise NameTrouble(f"{name.host} has over {ADDRESSES_LIMIT} addresses.")
        return addresses

    async def _of_family(self, name: ServiceName, family: socket.AddressFamily) -> set[str]:
        free = self._free.setdefault((name.host, family), threading.Semaphore(LOOKUPS_LIMIT))
        if not free.acquire(blocking=False):
            raise NameTrouble("The resolver does not answer.")

        def look_up() -> set[str]:
            try:
                found = socket.getaddrinfo(name.host, name.port, family, socket.SOCK_STREAM)
            except socket.gaierror as error:
                if error.errno in _NO_RECORDS:
                    return set()
                raise NameTrouble(f"{name.host}: {error.strerror}.") from error
            except (OSError, UnicodeError) as error:
                raise NameTrouble(f"{name.host}: {error}.") from error
            finally:
                free.release()
            return {str(Address(str(address[0]), name.port)) for _, _, _, _, address in found}

        return await run_in_daemon_thread("peer-names", look_up)
