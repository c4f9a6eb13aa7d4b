"""The usable set by key and by model. Each change keeps the order, so that no lookup sorts, scans or copies.

The cost of a change is a binary search and a move within one array for the key and for each of its models. The first
lookup after a change builds what it returns once, and later ones return the same object.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from poolmuster.client.responses import Document, model_names
from poolmuster.model.key import PoolKey

Place = tuple[bool, PoolKey]
"""Where a pool stands among the pools of a model: confirmed ones first, then in the order of their keys."""


class Usable(msgspec.Struct, frozen=True):
    """A pool that may be used. ``confirmed``: the service lists it, by the events received so far."""

    pool: Document
    confirmed: bool


class PoolIndex:
    """Pools by key and by model (id or alias), at first ``pools``. What it returns is never changed afterwards."""

    def __init__(self, pools: Mapping[PoolKey, Usable] | None = None) -> None:
        self._entries: dict[PoolKey, Usable] = {}
        self._names: dict[PoolKey, frozenset[str]] = {}
        self._keys = sorted(pools or ())
        self._places: dict[str, list[Place]] = {}
        self._usable: Mapping[PoolKey, Usable] | None = None
        self._listed: Mapping[PoolKey, Document] | None = None
        self._by_model: dict[str, tuple[Usable, ...]] = {}
        for key in self._keys:
            self._add(key, (pools or {})[key], list.append)
        for places in self._places.values():
            places.sort()

    @property
    def usable(self) -> Mapping[PoolKey, Usable]:
        """All pools, in the order of their keys."""
        if self._usable is None:
            self._usable = MappingProxyType({key: self._entries[key] for key in self._keys})
        return self._usable

    @property
    def listed(self) -> Mapping[PoolKey, Document]:
        """The confirmed pools, in the order of their keys."""
        if self._listed is None:
            self._listed = MappingProxyType({key: each.pool for key, each in self.usable.items() if each.confirmed})
        return self._listed

    def of_model(self, name: str) -> tuple[Usable, ...]:
        """The pools that serve a model, by id or alias: confirmed ones first, each part in the order of the keys."""
        if (places := self._places.get(name)) is None:
            return ()
        if (found := self._by_model.get(name)) is None:
            found = self._by_model[name] = tuple(self._entries[key] for _, key in places)
        return found

    def put(self, key: PoolKey, usable: Usable) -> None:
        """Add a pool, or replace the one of this key."""
        if key in self._entries:
            self._drop_names(key)
        else:
            insort(self._keys, key)
        self._add(key, usable, insort)
        self._usable = self._listed = None

    def remove(self, key: PoolKey) -> None:
        """Remove a pool. Does nothing where there is none of this key."""
        if key not in self._entries:
            return
        self._drop_names(key)
        del self._entries[key], self._keys[bisect_left(self._keys, key)]
        self._usable = self._listed = None

    def _add(self, key: PoolKey, usable: Usable, insert: Callable[[list[Place], Place], None]) -> None:
        self._entries[key] = usable
        self._names[key] = names = frozenset(model_names(usable.pool))
        for name in names:
            insert(self._places.setdefault(name, []), (not usable.confirmed, key))
            self._by_model.pop(name, None)

    def _drop_names(self, key: PoolKey) -> None:
        place = (not self._entries[key].confirmed, key)
        for name in self._names.pop(key):
            places = self._places[name]
            del places[bisect_left(places, place)]
            self._by_model.pop(name, None)
            if not places:
                del self._places[name]
