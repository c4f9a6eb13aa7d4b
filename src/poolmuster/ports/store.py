"""The registration store, as a port.

| call | atomic | raises | may take |
| --- | --- | --- | --- |
| `put` | yes, for its key | `RelayDeregistered`; `Unavailable`, after which it may have taken effect | 1.5 s |
| `deregister` | yes, for its key | `Unavailable`, after which it may have taken effect | 1.5 s |
| `statuses` | - | nothing | no time |
| `run` | - | only what ends the process | until it is cancelled |

A store never touches the list. It sends what it read, its own writes included, to its sink, and the catalog decides
which pools are live. `put` and `deregister` are called only while `run` runs.
"""

from enum import Enum, auto
from typing import Protocol

from poolmuster.model.change import PoolDeregistration
from poolmuster.model.registration import Registration
from poolmuster.ports.source import Source


class Expiry(Enum):
    """When leases of a store may end. ``CONTINUOUS``: whenever one is over. ``ON_UPDATE``: only at a good read."""

    CONTINUOUS = auto()
    ON_UPDATE = auto()


class RegistrationStore(Source, Protocol):
    """Where instances keep registrations."""

    @property
    def expiry(self) -> Expiry:
        """When leases of this store may end."""
        ...

    async def put(self, registration: Registration) -> None:
        """Store or renew ``registration`` for one lease from now."""
        ...

    async def deregister(self, deregistration: PoolDeregistration) -> None:
        """Deregister at once. Does nothing where the key is unknown or another relay was the latest."""
        ...
