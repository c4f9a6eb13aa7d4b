"""What a client holds of the list: the mirror and the usable set. Pure: no clock, no network.

The **mirror** equals the service's list under the client's filter. The **usable set** is the mirror and the pools that
an incomplete list lacked. Those are *unconfirmed*: the service may just not have heard of them yet, as after its
restart. They leave when the service says that they were removed, when its list is complete, or after an hour.
"""

import msgspec

from poolmuster.client.events import CompletenessChanged, Event, Removed, Snapshot, Upserted
from poolmuster.client.responses import Document, SourceReport
from poolmuster.model.key import PoolKey
from poolmuster.model.strict_json import canonical


class Usable(msgspec.Struct, frozen=True):
    """A pool that may be used. ``confirmed``: the service lists it now, as far as this client has heard."""

    pool: Document
    confirmed: bool


class Mirror:
    """Fed with each event of a watch in turn (`apply`). Times are of any one clock that never steps."""

    def __init__(self, unconfirmed_limit_ms: int = 3_600_000) -> None:
        self._limit_ms = unconfirmed_limit_ms
        self._pools: dict[PoolKey, Document] = {}
        self._unconfirmed: dict[PoolKey, tuple[Document, int]] = {}
        self.has_list = False
        """Whether a list was ever received."""
        self.complete = False
        """Whether the service last said that its list is complete."""
        self.sources: tuple[SourceReport, ...] = ()
        """The sources as they were told at ``told_ms``."""
        self.told_ms = 0
        self.revision: str | None = None

    @property
    def pools(self) -> dict[PoolKey, Document]:
        """The mirror, in the service's order."""
        return dict(sorted(self._pools.items()))

    @property
    def pools_json(self) -> bytes:
        """The mirror, byte for byte as the member ``pools`` of the service's list."""
        return b"[" + b",".join(map(canonical, self.pools.values())) + b"]"

    @property
    def usable(self) -> dict[PoolKey, Usable]:
        """The usable set, in the service's order."""
        confirmed = {key: Usable(pool, True) for key, pool in self._pools.items()}
        unconfirmed = {key: Usable(pool, False) for key, (pool, _) in self._unconfirmed.items()}
        return dict(sorted((confirmed | unconfirmed).items()))

    def apply(self, event: Event, now_ms: int) -> tuple[PoolKey, ...]:
        """Take in one event. Returns the unconfirmed pools that left the usable set by it."""
        if event.revision is not None:
            self.revision = event.revision
        if isinstance(event, Snapshot):
            return self._replace(event, now_ms)
        if isinstance(event, CompletenessChanged):
            return self._judge(event, now_ms)
        if isinstance(event, Upserted):
            self._pools[event.key] = event.pool
            self._unconfirmed.pop(event.key, None)
        elif isinstance(event, Removed):
            self._pools.pop(event.key, None)
            return () if self._unconfirmed.pop(event.key, None) is None else (event.key,)
        return ()

    def expire(self, now_ms: int) -> tuple[PoolKey, ...]:
        """Drop the pools that were unconfirmed for too long, and return their keys."""
        ended = tuple(key for key, (_, since_ms) in self._unconfirmed.items() if now_ms - since_ms >= self._limit_ms)
        for key in ended:
            del self._unconfirmed[key]
        return ended

    def _replace(self, event: Snapshot, now_ms: int) -> tuple[PoolKey, ...]:
        for key, pool in self._pools.items():
            self._unconfirmed.setdefault(key, (pool, now_ms))
        for key in event.pools:
            self._unconfirmed.pop(key, None)
        self._pools = dict(event.pools)
        self.has_list = True
        return self._judge(event, now_ms)

    def _judge(self, event: Snapshot | CompletenessChanged, now_ms: int) -> tuple[PoolKey, ...]:
        self.complete, self.sources, self.told_ms = event.complete, event.sources, now_ms
        if not event.complete:
            return ()
        gone = tuple(sorted(self._unconfirmed))
        self._unconfirmed.clear()
        return gone
