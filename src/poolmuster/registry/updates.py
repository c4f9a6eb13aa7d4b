"""What sources send: one update of what a source found at one moment.

The memory store sends one for each registration, a store that reads a table one for each good read, a topology one
for each change of placements. The order in which the parts take effect is the order of the fields:

1. the credit is added to every deadline of the source (rule L5);
2. renewals and deregistrations take effect;
3. placements and router replicas take effect;
4. where ``expire`` is set, leases end as of ``started_ms``;
5. the statuses take effect, but a change to stale does so before step 4, so that completeness is known to be lost
   before the first pool is removed for it.
"""

from typing import Any, Generic, Protocol, TypeVar

import msgspec

from poolmuster.model.change import Deregistration
from poolmuster.model.schema import RouterReplica
from poolmuster.registry.source_status import SourceStatus


class Record(Protocol):
    """What a registry lists.

    Keys are hashable and have an order; ``body`` is the JSON that lists show; ``digest`` is a wide hash of it
    (`poolmuster.model.registration.DIGEST_BITS`); ``size_bytes`` is what the record takes in memory.
    """

    @property
    def key(self) -> Any: ...

    @property
    def body(self) -> bytes: ...

    @property
    def digest(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


K = TypeVar("K")
R = TypeVar("R", bound=Record)


class Renewal(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """``record`` is live for ``remaining_ms`` from the start of the update.

    ``relay_id`` is the relay that registered it; ``lease_ms`` is the whole lease, within which another relay that
    registers the same key makes a conflict.
    """

    record: R
    relay_id: str | None
    lease_ms: int
    remaining_ms: int


class Placements(msgspec.Struct, Generic[K], frozen=True, kw_only=True):
    """Where a topology places records: all of them where ``whole``, else what was added and removed."""

    added: frozenset[K]
    removed: frozenset[K] = frozenset()
    whole: bool = False


class SourceUpdate(msgspec.Struct, Generic[K, R], frozen=True, kw_only=True):
    """One update. ``started_ms`` is the monotonic time at which the source began to look.

    ``routers`` is the whole set of router replicas of this source, ``statuses`` its statuses after the update;
    ``None`` leaves them as they are.
    """

    started_ms: int
    credit_ms: int = 0
    renewals: tuple[Renewal[R], ...] = ()
    deregistrations: tuple[Deregistration[K], ...] = ()
    placements: Placements[K] | None = None
    routers: tuple[RouterReplica, ...] | None = None
    expire: bool = False
    statuses: tuple[SourceStatus, ...] | None = None
