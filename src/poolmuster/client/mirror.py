"""A client's copy of the list: the mirror and the usable set. Pure: no clock, no network.

The **mirror** equals the service's list under the client's filter. The **usable set** is the mirror and the pools that
an incomplete list lacked. Those are *unconfirmed*: the service may not have received their heartbeats yet, as after its
restart. They leave when the service removes them, when its list is complete, or after an hour.
"""

from collections.abc import Mapping

from poolmuster.client.events import CompletenessChanged, Event, Removed, Upserted, WatchSnapshot
from poolmuster.client.pool_index import PoolIndex, Usable
from poolmuster.client.responses import Document, SourceReport
from poolmuster.model.key import PoolKey
from poolmuster.model.strict_json import canonical


class Mirror:
    """Takes each event of a watch in turn (`apply`). Times are of any one clock that never steps."""

    def __init__(self, unconfirmed_limit_ms: int = 3_600_000) -> None:
        self._limit_ms = unconfirmed_limit_ms
        self._index = PoolIndex()
        self._unconfirmed_since_ms: dict[PoolKey, int] = {}  # oldest first
        self.has_list = False
        """Whether a list was ever received."""
        self.complete = False
        """Whether the service last reported its list as complete."""
        self.sources: tuple[SourceReport, ...] = ()
        """The sources as reported at ``sources_at_ms``."""
        self.sources_at_ms = 0
        self.revision: str | None = None

    @property
    def pools(self) -> Mapping[PoolKey, Document]:
        """The mirror, in the service's order."""
        return self._index.listed

    @property
    def pools_json(self) -> bytes:
        """The mirror, byte for byte as the member ``pools`` of the service's list."""
        return b"[" + b",".join(map(canonical, self.pools.values())) + b"]"

    @property
    def usable(self) -> Mapping[PoolKey, Usable]:
        """The usable set, in the service's order."""
        return self._index.usable

    def pools_of(self, model: str) -> tuple[Usable, ...]:
        """The pools of the usable set that serve a model, by id or alias, confirmed ones first."""
        return self._index.of_model(model)

    def apply(self, event: Event, now_ms: int) -> tuple[PoolKey, ...]:
        """Apply one event. Returns the unconfirmed pools that left the usable set with it."""
        if event.revision is not None:
            self.revision = event.revision
        match event:
            case WatchSnapshot():
                return self._replace(event, now_ms)
            case CompletenessChanged():
                self._set_completeness(event, now_ms)
                return self._forget(sorted(self._unconfirmed_since_ms)) if event.complete else ()
            case Upserted():
                self._index.put(event.key, Usable(event.pool, True))
                self._unconfirmed_since_ms.pop(event.key, None)
            case Removed():
                self._index.remove(event.key)
                return () if self._unconfirmed_since_ms.pop(event.key, None) is None else (event.key,)
        return ()

    def expire(self, now_ms: int) -> tuple[PoolKey, ...]:
        """Remove the pools that were unconfirmed for too long, and return their keys."""
        expired: list[PoolKey] = []
        for key, since_ms in self._unconfirmed_since_ms.items():
            if now_ms - since_ms < self._limit_ms:
                break
            expired.append(key)
        return self._forget(expired)

    def _replace(self, event: WatchSnapshot, now_ms: int) -> tuple[PoolKey, ...]:
        before = self._index.usable
        since_ms = self._unconfirmed_since_ms | dict.fromkeys(self._index.listed, now_ms)
        absent = {key: at_ms for key, at_ms in since_ms.items() if key not in event.pools}
        self._unconfirmed_since_ms = {} if event.complete else absent
        confirmed = {key: Usable(pool, True) for key, pool in event.pools.items()}
        unconfirmed = {key: Usable(before[key].pool, False) for key in self._unconfirmed_since_ms}
        self._index = PoolIndex(confirmed | unconfirmed)
        self.has_list = True
        self._set_completeness(event, now_ms)
        return tuple(sorted(absent)) if event.complete else ()

    def _set_completeness(self, event: WatchSnapshot | CompletenessChanged, now_ms: int) -> None:
        self.complete, self.sources, self.sources_at_ms = event.complete, event.sources, now_ms

    def _forget(self, keys: list[PoolKey]) -> tuple[PoolKey, ...]:
        for key in keys:
            del self._unconfirmed_since_ms[key]
        if keys:  # in one step, as there may be many
            rest = {
                key: each
                for key, each in self._index.usable.items()
                if each.confirmed or key in self._unconfirmed_since_ms
            }
            self._index = PoolIndex(rest)
        return tuple(keys)
