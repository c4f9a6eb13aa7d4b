"""The list: pools in order, encoded once a change and not once a request.

Pools are kept in pages of about a hundred, each with its joined bytes. A change makes one page's bytes stale, so the
next list after it joins one page anew, however many pools there are. The digest is the sum of the pools' wide
digests: equal sets of pools have equal digests on every instance, and no list is ever hashed whole.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from poolmuster.model.key import PoolKey
from poolmuster.model.registration import DIGEST_BITS, Pool

PAGE_POOLS = 128
_DIGEST_MASK = (1 << DIGEST_BITS) - 1


class _Page:
    __slots__ = ("joined", "keys", "pools")

    def __init__(self, keys: list[PoolKey], pools: list[Pool]) -> None:
        self.keys = keys
        self.pools = pools
        self.joined: bytes | None = None


class Listing:
    """Pools sorted by key. With ``keeps_bytes`` each page remembers its joined bytes between calls."""

    def __init__(self, pools: list[Pool] | None = None, *, keeps_bytes: bool = True) -> None:
        self._keeps_bytes = keeps_bytes
        self._pages: list[_Page] = []
        self._firsts: list[PoolKey] = []
        self.count = 0
        self.body_bytes = 0
        self.digest = 0
        for start in range(0, len(pools or ()), PAGE_POOLS):
            part = (pools or [])[start : start + PAGE_POOLS]
            self._pages.append(_Page([pool.key for pool in part], part))
            self._firsts.append(part[0].key)
            for pool in part:
                self._account(pool, 1)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Pool]:
        for page in self._pages:
            yield from page.pools

    def _account(self, pool: Pool, sign: int) -> None:
        self.count += sign
        self.body_bytes += sign * len(pool.body)
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
        if not self._pages:
            self._pages.append(_Page([], []))
            self._firsts.append(pool.key)
        number, index, found = self._locate(pool.key)
        page = self._pages[number]
        page.joined = None
        if found:
            self._account(page.pools[index], -1)
            page.pools[index] = pool
        else:
            page.keys.insert(index, pool.key)
            page.pools.insert(index, pool)
            self._firsts[number] = page.keys[0]
            if len(page.keys) > 2 * PAGE_POOLS:
                self._split(number)
        self._account(pool, 1)

    def _split(self, number: int) -> None:
        page = self._pages[number]
        right = _Page(page.keys[PAGE_POOLS:], page.pools[PAGE_POOLS:])
        del page.keys[PAGE_POOLS:], page.pools[PAGE_POOLS:]
        self._pages.insert(number + 1, right)
        self._firsts.insert(number + 1, right.keys[0])

    def remove(self, key: PoolKey) -> None:
        """Take the pool of ``key`` out, if it is in the list."""
        if not self._pages:
            return
        number, index, found = self._locate(key)
        if not found:
            return
        page = self._pages[number]
        self._account(page.pools[index], -1)
        del page.keys[index], page.pools[index]
        page.joined = None
        if page.keys:
            self._firsts[number] = page.keys[0]
        else:
            del self._pages[number], self._firsts[number]

    def pieces(self) -> list[bytes]:
        """The pools as JSON, a piece a page; joined by commas they are the inside of the array ``pools``."""
        pieces = []
        for page in self._pages:
            joined = page.joined
            if joined is None:
                joined = b",".join([pool.body for pool in page.pools])
                if self._keeps_bytes:
                    page.joined = joined
            pieces.append(joined)
        return pieces
