"""The list: records in order, encoded once a change and not once a request.

Records are kept in pages of about a hundred, each with its encoded bytes. A change replaces one page, so the next list
after it encodes one page anew, however many records there are. The digest is the sum of the records' wide digests:
equal sets of records have equal digests on every instance, and no list is ever hashed whole.

Pages are never altered, so a response is a sequence of them, taken in one step and sent at the client's own pace. A
page that is no longer current drops its bytes: a slow client then holds references to records, which it shares with all
others, and not a copy of the list.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Generic

from poolmuster.model.registration import DIGEST_BITS
from poolmuster.registry.updates import R

PAGE_RECORDS = 128
_DIGEST_MASK = (1 << DIGEST_BITS) - 1


class Page(Generic[R]):
    """Some records in a row. ``size_bytes`` is the length of their JSON."""

    __slots__ = ("_encoded", "_keeps_bytes", "keys", "records", "size_bytes")

    def __init__(self, keys: list[Any], records: list[R], size_bytes: int, *, keeps_bytes: bool) -> None:
        self.keys = keys
        self.records = records
        self.size_bytes = size_bytes
        self._keeps_bytes = keeps_bytes
        self._encoded: bytes | None = None

    def encoded(self) -> bytes:
        """The records as JSON, each with a comma *before* it, so that pages follow each other without copying."""
        if self._encoded is not None:
            return self._encoded
        encoded = b"".join([part for record in self.records for part in (b",", record.body)])
        if self._keeps_bytes:
            self._encoded = encoded
        return encoded

    def release(self) -> None:
        """Drop the bytes: the list has another page in its place."""
        self._keeps_bytes = False
        self._encoded = None


class RecordList(Generic[R]):
    """Records sorted by key. With ``keeps_bytes`` each current page keeps its encoded bytes."""

    def __init__(self, records: list[R] | None = None, *, keeps_bytes: bool = True) -> None:
        self._keeps_bytes = keeps_bytes
        self._pages: list[Page[R]] = []
        self._firsts: list[Any] = []
        self.count = 0
        self.digest = 0
        given = records or []
        for start in range(0, len(given), PAGE_RECORDS):
            part = given[start : start + PAGE_RECORDS]
            self._pages.append(self._page([record.key for record in part], part))
            self._firsts.append(part[0].key)
            for record in part:
                self._add_totals(record, 1)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[R]:
        for page in self._pages:
            yield from page.records

    def pages(self) -> list[Page[R]]:
        """The pages as they are now; they stay so whatever happens to the list."""
        return list(self._pages)

    def _page(self, keys: list[Any], records: list[R]) -> Page[R]:
        size_bytes = len(records) + sum([len(record.body) for record in records])
        return Page(keys, records, size_bytes, keeps_bytes=self._keeps_bytes)

    def _add_totals(self, record: R, sign: int) -> None:
        self.count += sign
        self.digest = (self.digest + sign * record.digest) & _DIGEST_MASK

    def _locate(self, key: Any) -> tuple[int, int, bool]:
        number = max(0, bisect_right(self._firsts, key) - 1)
        keys = self._pages[number].keys
        index = bisect_left(keys, key)
        return number, index, index < len(keys) and keys[index] == key

    def get(self, key: Any) -> R | None:
        """The record of ``key``, if it is in the list."""
        if not self._pages:
            return None
        number, index, found = self._locate(key)
        return self._pages[number].records[index] if found else None

    def put(self, record: R) -> None:
        """Add ``record``, or let it replace the one of the same key."""
        self._add_totals(record, 1)
        if not self._pages:
            self._replace(0, [self._page([record.key], [record])])
            return
        number, index, found = self._locate(record.key)
        page = self._pages[number]
        if found:
            self._add_totals(page.records[index], -1)
        after = index + 1 if found else index
        keys = [*page.keys[:index], record.key, *page.keys[after:]]
        records = [*page.records[:index], record, *page.records[after:]]
        if len(keys) <= 2 * PAGE_RECORDS:
            self._replace(number, [self._page(keys, records)])
        else:
            left, right = (keys[:PAGE_RECORDS], records[:PAGE_RECORDS]), (keys[PAGE_RECORDS:], records[PAGE_RECORDS:])
            self._replace(number, [self._page(*left), self._page(*right)])

    def remove(self, key: Any) -> None:
        """Remove the record of ``key``, if it is in the list."""
        if not self._pages:
            return
        number, index, found = self._locate(key)
        if not found:
            return
        page = self._pages[number]
        self._add_totals(page.records[index], -1)
        keys, records = page.keys[:index] + page.keys[index + 1 :], page.records[:index] + page.records[index + 1 :]
        self._replace(number, [self._page(keys, records)] if keys else [])

    def _replace(self, number: int, pages: list[Page[R]]) -> None:
        for page in self._pages[number : number + 1]:
            page.release()
        self._pages[number : number + 1] = pages
        self._firsts[number : number + 1] = [page.keys[0] for page in pages]
