"""The table under a polled store, as a port. A product implements `Table` and knows nothing of leases.

Reads are consistent: they find each item as put by the last call that was answered before they began. `Table.get` and
`Table.put` are atomic for their key; an item that is put during a scan is yielded as before or as after. Calls raise
`StoreError`, or errors of the product; after an error of `Table.put` the item may have been stored.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from poolmuster.model.key import PoolKey
from poolmuster.model.source import SourceReason
from poolmuster.sources.polled.server_clock import ServerClock

POOL = "POOL"
"""The partition of pools."""


class StoreError(Exception):
    """A call failed: its reason, and one line for people, without secrets.

    ``detail`` is for operators: the log and the command line. ``shown`` is for all who may read the list, and does not
    name accounts or roles. ``code`` is the product's own name of the error.
    """

    def __init__(self, reason: SourceReason, detail: str, *, code: str = "", shown: str | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.code = code
        self.shown = detail if shown is None else shown

    def with_detail(self, more: str = "") -> "StoreError":
        """A copy without a traceback, with ``more`` added to its texts."""
        more = more and f"; {more}"
        return StoreError(self.reason, self.detail + more, code=self.code, shown=self.shown + more)


class StoredItem(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One item of the partition `POOL`. A foreign item may lack anything; what is absent or unreadable is ``None``.

    ``key`` is the key's stored form, ``registration`` the JSON that the relay sent, ``writer`` ``<region>/<boot id>``.
    ``ends_ms`` is the end of the lease in ms since 1970, 0 once deregistered; ``expires_at_s`` is when the table may
    delete the item. ``raw`` is the item as the product returned it: `Table.put` stores what it has beside these
    fields unchanged, except earlier ``left_`` attributes.
    """

    key: str
    registration: str | None
    ends_ms: int | None
    expires_at_s: int | None = None
    lease_ms: int | None = None
    relay_id: str | None = None
    writer: str | None = None
    left_relay_id: str | None = None
    left_reason: str | None = None
    left_detail: str | None = None
    raw: Any = None


class NotLeft(msgspec.Struct, frozen=True):
    """Unless the item bars ``relay_id`` at ``now_s``: that relay deregistered it, and the item has not expired.

    Another implementation that renews an item may leave attributes in it that it does not know. So an item whose end
    is not 0 bars no relay.
    """

    relay_id: str
    now_s: int


class SameRelay(msgspec.Struct, frozen=True):
    """Where there is an item, and ``relay_id`` is its relay."""

    relay_id: str


class SameEnd(msgspec.Struct, frozen=True):
    """Where there is an item, and its end is stored as in ``item``."""

    item: StoredItem


Condition = NotLeft | SameRelay | SameEnd
"""When a put takes effect."""


class Table(Protocol):
    """One table of a product, read by an instance in ``region``, where that is known.

    ``name`` is that of the source; ``location`` names table, region and endpoint, for messages. Calls set
    ``server_clock`` where their answers bear the time.
    """

    name: str
    location: str
    region: str | None
    server_clock: ServerClock

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Connections, and upkeep such as that of credentials, for as long as the context lasts."""
        ...

    def scan(self, partitions: Sequence[str], ends_ms: int) -> AsyncGenerator[Iterable[StoredItem], None]:
        """All items of ``partitions``, in parts of any size, until ``ends_ms`` of the monotonic clock at most."""
        ...

    async def get(self, key: PoolKey, timeout_s: float) -> StoredItem | None:
        """The item of ``key``."""
        ...

    async def put(self, item: StoredItem, condition: Condition | None, timeout_s: float) -> bool:
        """Store ``item`` whole. Returns whether ``condition`` held; where it did not, nothing was stored."""
        ...

    def classify(self, error: Exception) -> StoreError | None:
        """What an error other than `StoreError` means; ``None`` where it is none of the product's."""
        ...
