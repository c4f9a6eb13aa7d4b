"""The list: pools in order, encoded once a change and not once a request.

Pools are kept in pages of about a hundred, each with its joined bytes. A change replaces one page, so the next list
after it joins one page anew, however many pools there are. The digest is the sum of the pools' wide digests: equal
sets of pools have equal digests on every instance, and no list is ever hashed whole.

Pages are never altered, so an answer is a sequence of them, taken in one step and sent at the client's own pace. A page
that is no longer current drops its bytes: what a slow client holds on to are references to pools, which it shares with
everybody, and not a copy of the list.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from poolmuster.model.key import PoolKey
from poolmuster.model.registration import DIGEST_BITS, Pool

PAGE_RECORDS = 128
_DIGEST_MASK = (1 << DIGEST_BITS) - 1


class Page:
    """Some pools in a row. ``size_bytes`` is the length of its JSON."""

    __slots__ = ("_encoded", "_keeps_bytes", "keys", "pools", "size_bytes")

    def __init__(self, keys: list[PoolKey], pools: list[Pool], size_bytes: int, *, keeps_bytes: bool) -> None:
        self.keys = keys
        self.pools = pools
        self.size_bytes = size_bytes
        self._keeps_bytes = keeps_bytes
        self._encoded: bytes | None = None

    def encoded(self) -> bytes:
        """The pools as JSON, each with a comma *before* it, so that pages follow each other without copying."""
        if self._encoded is not None:
            return self._encoded
        joined = b"".join([part for pool in self.pools for part in (b",", pool.body)])
        if self._keeps_bytes:
            self._encoded = joined
        return joined

    def release(self) -> None:
        """The list has another page in its place."""
        self._keeps_bytes = False
        self._encoded = None


class RecordList:
    """Pools sorted by key. With ``keeps_bytes`` each current page remembers its joined bytes."""

    def __init__(self, pools: list[Pool] | None = None, *, keeps_bytes: bool = True) -> None:
        self._keeps_bytes = keeps_bytes
        self._pages: list[Page] = []
        self._firsts: list[PoolKey] = []
        self.count = 0
        self.registrations_bytes = 0
        self.digest = 0
        given = pools or []
        for start in range(0, len(given), PAGE_RECORDS):
            part = given[start : start + PAGE_RECORDS]
            self._pages.append(self._page([pool.key for pool in part], part))
            self._firsts.append(part[0].key)
            for pool in part:
                self._add_totals(pool, 1)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Pool]:
        for page in self._pages:
            yield from page.pools

    def pages(self) -> list[Page]:
        """The pages as they are now; they stay so whatever happens to the list."""
        return list(self._pages)

    def _page(self, keys: list[PoolKey], pools: list[Pool]) -> Page:
        size_bytes = len(pools) + sum([len(pool.body) for pool in pools])
        return Page(keys, pools, size_bytes, keeps_bytes=self._keeps_bytes)

    def _add_totals(self, pool: Pool, sign: int) -> None:
        self.count += sign
        self.registrations_bytes += sign * pool.size_bytes
        self.digest = (self.digest + sign * pool.digest) & _DIGEST_MASK

    def _locate(self, key: PoolKey) -> tuple[int, int, bool]:
        number = max(0, bisect_right(self._firsts, key) - 1)
        keys = self._pages[number].keys
        index = bisect_left(keys, key)
        return number, index, index < len(keys) and keys[index] == key

    def get(self, key: PoolKey) -> Pool | None:
        """The pool of ``key``, if it is in the list."""
        if not self._pages:
            return None
        number, index, found = self._locate(key)
        return self._pages[number].pools[index] if found else None

    def put(self, pool: Pool) -> None:
        """Add ``pool``, or let it replace the one of the same key."""
        self._add_totals(pool, 1)
        if not self._pages:
            self._replace(0, [self._page([pool.key], [pool])])
            return
        number, index, found = self._locate(pool.key)
        page = self._pages[number]
        if found:
            self._add_totals(page.pools[index], -1)
        after = index + 1 if found else index
        keys = [*page.keys[:index], pool.key, *page.keys[after:]]
        pools = [*page.pools[:index], pool, *page.pools[after:]]
        if len(keys) <= 2 * PAGE_RECORDS:
            self._replace(number, [self._page(keys, pools)])
        else:
            left, right = (keys[:PAGE_RECORDS], pools[:PAGE_RECORDS]), (keys[PAGE_RECORDS:], pools[PAGE_RECORDS:])
            self._replace(number, [self._page(*left), self._page(*right)])

    def remove(self, key: PoolKey) -> None:
        """Take the pool of ``key`` out, if it is in the list."""
        if not self._pages:
            return
        number, index, found = self._locate(key)
        if not found:
            return
        page = self._pages[number]
        self._add_totals(page.pools[index], -1)
        keys, pools = page.keys[:index] + page.keys[index + 1 :], page.pools[:index] + page.pools[index + 1 :]
        self._replace(number, [self._page(keys, pools)] if keys else [])

    def _replace(self, number: int, pages: list[Page]) -> None:
        for page in self._pages[number : number + 1]:
            page.release()
        self._pages[number : number + 1] = pages
        self._firsts[number : number + 1] = [page.keys[0] for page in pages]
