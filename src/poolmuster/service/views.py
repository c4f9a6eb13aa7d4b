"""Views: the list through a selector, kept up to date from the history instead of being filtered anew.

The first request for a selector filters all pools, in slices that let others run; from then on a view only follows
the changes. The least recently used views are dropped.
"""

import asyncio
from collections import OrderedDict

from poolmuster.model.change import PoolChange
from poolmuster.model.registration import Pool
from poolmuster.model.selector import Selector
from poolmuster.registry.change_filter import is_selected
from poolmuster.registry.change_log import ChangeLog
from poolmuster.registry.record_list import RecordList

VIEWS_LIMIT = 128
SLICE = 1000


class View:
    """The pools that ``selector`` matches, as of the history's number ``number``."""

    def __init__(self, selector: Selector, listing: RecordList[Pool], number: int) -> None:
        self.selector = selector
        self.pools = listing
        self.number = number

    def apply(self, changes: list[PoolChange]) -> None:
        """Take in the next changes."""
        for change in changes:
            self.number = change.number
            if is_selected(change.after, self.selector):
                assert change.after is not None, "selected"
                self.pools.put(change.after)
            elif is_selected(change.before, self.selector):
                assert change.before is not None, "selected"
                self.pools.remove(change.before.key)


class Views:
    """The view of each selector in use."""

    def __init__(self, listing: RecordList[Pool], change_log: ChangeLog[Pool]) -> None:
        self._history = change_log
        self._everything = listing
        self._views: OrderedDict[Selector, View] = OrderedDict()
        self._locks: dict[Selector, asyncio.Lock] = {}

    def __len__(self) -> int:
        return len(self._views)

    async def pools(self, selector: Selector) -> RecordList[Pool]:
        """The list through ``selector``, exact at the moment this returns and until the caller next waits."""
        if selector.selects_all:
            return self._everything
        lock = self._locks.setdefault(selector, asyncio.Lock())
        try:
            async with lock:
                return (await self._current(selector)).pools
        finally:
            if not lock.locked():
                self._locks.pop(selector, None)

    async def _current(self, selector: Selector) -> View:
        view = self._views.get(selector)
        if view is None:
            view = await self._build(selector)
            self._views[selector] = view
            while len(self._views) > VIEWS_LIMIT:
                self._views.popitem(last=False)
        self._views.move_to_end(selector)
        while view.number != self._history.number:
            changes = self._history.since(view.number, SLICE)
            if changes is None:
                view = self._views[selector] = await self._build(selector)
                continue
            view.apply(changes)
            if view.number != self._history.number:
                await asyncio.sleep(0)
        return view

    async def _build(self, selector: Selector) -> View:
        number = self._history.number
        pools = list(self._everything)
        matched: list[Pool] = []
        for start in range(0, len(pools), SLICE):
            matched += [pool for pool in pools[start : start + SLICE] if selector.matches(pool)]
            await asyncio.sleep(0)
        return View(selector, RecordList(matched, keeps_bytes=False), number)
