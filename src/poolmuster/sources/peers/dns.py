"""Resolves the peers' names by the system's resolver, each address family by itself.

A lookup that hangs keeps its thread, as nothing can stop it. So the lookups of a name are bounded: while all of them
hang, further ones fail at once.
"""

import asyncio
import socket
import threading
from typing import NamedTuple

from poolmuster.model.address import Address
from poolmuster.platform.threads import run_in_daemon_thread
from poolmuster.sources.peers.errors import ResolverError

LOOKUPS_LIMIT = 8
"""The limit of lookups at once, for one name and family."""

ADDRESSES_LIMIT = 100
"""The limit of instances behind one name."""

FAMILIES = (socket.AF_INET, socket.AF_INET6)
_NO_RECORDS = frozenset(
    {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None), getattr(socket, "EAI_ADDRFAMILY", None)}
)


class ServiceName(NamedTuple):
    """A value of ``--peer-service``. The certificates of its instances must be for ``host``."""

    host: str
    port: int

    def __str__(self) -> str:
        return str(Address(self.host, self.port))


class SystemResolver:
    """Resolves names to addresses in the form of `poolmuster.model.address.Address`."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, socket.AddressFamily], threading.Semaphore] = {}

    async def resolve(self, name: ServiceName) -> frozenset[str]:
        """The addresses behind ``name``, none where it has no records. Raises `ResolverError`."""
        found = await asyncio.gather(*(self._of_family(name, family) for family in FAMILIES))
        addresses = frozenset[str]().union(*found)
        if len(addresses) > ADDRESSES_LIMIT:
            raise ResolverError(f"{name.host} has over {ADDRESSES_LIMIT} addresses.")
        return addresses

    async def _of_family(self, name: ServiceName, family: socket.AddressFamily) -> set[str]:
        free = self._free.setdefault((name.host, family), threading.Semaphore(LOOKUPS_LIMIT))
        if not free.acquire(blocking=False):
            raise ResolverError("The resolver does not answer.")

        def look_up() -> set[str]:
            try:
                found = socket.getaddrinfo(name.host, name.port, family, socket.SOCK_STREAM)
            except socket.gaierror as error:
                if error.errno in _NO_RECORDS:
                    return set()
                raise ResolverError(f"{name.host}: {error.strerror}.") from error
            except (OSError, UnicodeError) as error:
                raise ResolverError(f"{name.host}: {error}.") from error
            finally:
                free.release()
            return {str(Address(str(address[0]), name.port)) for _, _, _, _, address in found}

        return await run_in_daemon_thread("peer-names", look_up)
