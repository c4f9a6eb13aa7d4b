"""The registration store, as a port.

| call | atomic | raises | may take |
| --- | --- | --- | --- |
| `put` | yes, for its key | `RelayDeregistered`; `Unavailable`, and then it may have taken effect | 1.5 s |
| `leave` | yes, for its key | `Unavailable`, and then it may have taken effect | 1.5 s |
| `sources` | - | nothing | no time: it never waits |
| `run` | - | only what ends the process | for ever |

A store never touches the list. It tells its observer what it reads in `SourceUpdate`s, one at a time, and the observer
decides who lives. So a writer sees its own write on the same way as everybody else.
"""

from collections.abc import Callable
from typing import Protocol

from poolmuster.model.change import Deregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Registration
from poolmuster.model.source import SourceInfo
from poolmuster.registry.updates import SourceUpdate


class StoreObserver(Protocol):
    """Whoever is told what a store reads."""

    def observe(self, reading: SourceUpdate) -> bool:
        """Take in one reading. Returns whether more leases are over than were ended in this turn. Must not raise."""
        ...

    def is_live(self, key: PoolKey) -> bool:
        """Whether the pool is live."""
        ...

    def next_expiry_ms(self) -> int | None:
        """When, on the monotonic clock, a lease could end next; for stores that know the present at any time."""
        ...


class RegistrationStore(Protocol):
    """Where instances keep registrations. See the module for what is atomic and what may fail."""

    @property
    def name(self) -> str:
        """What ``--registration-storage`` calls it."""
        ...

    def attach(self, observer: StoreObserver, on_trouble: Callable[[], None]) -> None:
        """Say who is told; ``on_trouble`` is called when the state of a source changed without a reading."""
        ...

    async def put(self, registration: Registration) -> None:
        """Store or renew a registration for one lease from now."""
        ...

    async def deregister(self, deregistration: Deregistration) -> None:
        """Deregister at once. Does nothing where the key is unknown or another relay was the latest."""
        ...

    def sources(self, now_ms: int) -> tuple[SourceInfo, ...]:
        """Every source of the list with its state at ``now_ms``."""
        ...

    async def run(self) -> None:
        """Read, tick, resolve: whatever the store does by itself. Runs until cancelled."""
        ...
