"""A table of a polled store in one file of SQLite: what a second product has to implement, and no more."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from poolmuster.model.key import PoolKey
from poolmuster.model.source import SourceReason
from poolmuster.sources.polled.server_clock import ServerClock
from poolmuster.sources.polled.table import POOL, Condition, NotLeft, SameRelay, StoredItem, StoreError

PAGE = 500
COLUMNS = tuple(name for name in StoredItem.__struct_fields__ if name != "raw")
NAMES = ", ".join(COLUMNS)
CREATE = f"CREATE TABLE IF NOT EXISTS items (partition, {NAMES}, PRIMARY KEY (partition, key))"
SELECT = f"SELECT {NAMES} FROM items WHERE partition = ?"  # noqa: S608  # the names are ours, here and below
UPDATE = f"UPDATE items SET ({NAMES}) = ({', '.join('?' * len(COLUMNS))}) WHERE partition = ? AND key = ?"  # noqa: S608
INSERT = (
    f"INSERT INTO items (partition, {NAMES}) VALUES (?, {', '.join('?' * len(COLUMNS))}) "  # noqa: S608
    f"ON CONFLICT DO UPDATE SET ({NAMES}) = ({', '.join(f'excluded.{name}' for name in COLUMNS)})"
)
NOT_LEFT = "items.left_relay_id IS NULL OR items.left_relay_id <> ? OR items.expires_at_s <= ? OR items.ends_ms <> 0"


class SqliteTable:
    """`poolmuster.sources.polled.table.Table` in the file at ``path``. Its calls block: it is for tests."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.location = f"SQLite {path}"
        self.region: str | None = None
        self.server_clock = ServerClock()  # no answer bears the time, so the wall clock serves
        self._path = path
        self._connection: sqlite3.Connection | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=0.2)
        try:
            self._execute(CREATE)
            yield
        finally:
            self._connection.close()

    async def scan(self, partitions: Sequence[str], ends_ms: int) -> AsyncGenerator[Iterable[StoredItem], None]:
        for partition in partitions:
            last = ""
            while rows := self._execute(f"{SELECT} AND key > ? ORDER BY key LIMIT {PAGE}", partition, last):
                yield map(_item, rows)
                last = rows[-1][0]
                await asyncio.sleep(0)

    async def get(self, key: PoolKey, timeout_s: float) -> StoredItem | None:
        rows = self._execute(f"{SELECT} AND key = ?", POOL, key.storage_key)
        return _item(rows[0]) if rows else None

    async def put(self, item: StoredItem, condition: Condition | None, timeout_s: float) -> bool:
        values = [getattr(item, name) for name in COLUMNS]
        if condition is None:
            rows = self._execute(f"{INSERT} RETURNING 1", POOL, *values)
        elif isinstance(condition, NotLeft):
            insert = f"{INSERT} WHERE {NOT_LEFT} RETURNING 1"
            rows = self._execute(insert, POOL, *values, condition.relay_id, condition.now_s)
        elif isinstance(condition, SameRelay):
            rows = self._execute(f"{UPDATE} AND relay_id = ? RETURNING 1", *values, POOL, item.key, condition.relay_id)
        else:
            ends_ms = condition.item.ends_ms
            rows = self._execute(f"{UPDATE} AND ends_ms IS ? RETURNING 1", *values, POOL, item.key, ends_ms)
        return bool(rows)

    def classify(self, error: Exception) -> StoreError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        reason = SourceReason.THROTTLED if "locked" in str(error) else SourceReason.UNREACHABLE
        return StoreError(reason, f"{self.location}: {error}")

    def _execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        assert self._connection is not None, "calls are made within opened"
        return self._connection.execute(statement, values).fetchall()


def _item(row: tuple[Any, ...]) -> StoredItem:
    return msgspec.convert(dict(zip(COLUMNS, row, strict=True)), StoredItem)
