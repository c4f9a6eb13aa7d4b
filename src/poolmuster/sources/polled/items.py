"""What an item of a table means, and what this service writes."""

import json
import re

import msgspec

from poolmuster.model.change import DETAIL_LIMIT, DeregistrationReason, PoolDeregistration
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import RELAY_ID_LIMIT, Pool, Registration, parse_registration
from poolmuster.registry.table_scan import TableItem
from poolmuster.sources.polled.table import StoredItem

TIME_TO_LIVE_S = 3600
MAX_LEASE_MS = 86_400_000
NO_REGION = "-"
CARRIED_LIMIT_BYTES = 64 * 1024 * 1024
"""Size of the texts parsed by failed scans that are kept, beside those of the last good scan."""

_REGION = re.compile(r"[A-Za-z0-9._-]{1,63}")
_REASONS = {str(reason): reason for reason in DeregistrationReason}


class InvalidItem(Exception):
    """An item that cannot be read; the text is the reason. It is skipped and hides no other."""


def live_item(registration: Registration, *, ends_ms: int, lease_ms: int, writer: str) -> StoredItem:
    """The item of a registration whose lease ends at ``ends_ms`` by the table's clock."""
    text = registration.pool.body.decode()
    if registration.relay_id is not None:
        text = f'{text[:-1]},"relay_id":{json.dumps(registration.relay_id, ensure_ascii=False)}}}'
    return StoredItem(
        key=registration.key.storage_key,
        registration=text,
        ends_ms=ends_ms,
        expires_at_s=ends_ms // 1000 + TIME_TO_LIVE_S,
        lease_ms=lease_ms,
        relay_id=registration.relay_id,
        writer=writer,
    )


def deregistered_item(item: StoredItem, deregistration: PoolDeregistration, *, now_ms: int) -> StoredItem:
    """``item``, as last read, after ``deregistration``."""
    return msgspec.structs.replace(
        item,
        ends_ms=0,
        expires_at_s=now_ms // 1000 + TIME_TO_LIVE_S,
        left_relay_id=deregistration.relay_id,
        left_reason=deregistration.reason,
        left_detail=deregistration.detail or None,
    )


class ItemParser:
    """Parses items. The result of a registration's text, good or not, is cached: it is the same at every scan."""

    def __init__(self) -> None:
        self._parsed: dict[str, Registration | InvalidItem] = {}
        self._kept: dict[str, Registration | InvalidItem] = {}
        self._carried_bytes = 0
        self.parsed_bytes = 0
        """Size of the texts so far that were not in the cache."""

    def begin_scan(self) -> None:
        """A scan begins. Results of one that failed halfway are kept.

        Otherwise a table that takes longer to parse than a scan may take would never be read.
        """
        for text, found in self._kept.items():
            if text not in self._parsed and self._carried_bytes < CARRIED_LIMIT_BYTES:
                self._carried_bytes += len(text)
                self._parsed[text] = found
        self._kept = {}

    def end_scan(self) -> None:
        """A scan of the whole table has ended: drop the texts that it did not find."""
        self._parsed, self._kept = self._kept, {}
        self._carried_bytes = 0

    def parse(self, item: StoredItem) -> TableItem[PoolKey, Pool]:
        """Read one item, of whichever implementation. Raises `InvalidItem`."""
        text = item.registration
        if text is None:
            raise InvalidItem("it has no string 'registration'")
        found = self._parsed.get(text)
        if found is None:
            found = _parse_text(text)
            self.parsed_bytes += len(text)
        self._kept[text] = found
        if isinstance(found, InvalidItem):
            raise InvalidItem(str(found))
        if item.key != found.key.storage_key:
            raise InvalidItem(f"its sort key is not that of its registration, {found.key}")
        if item.ends_ms is None:
            raise InvalidItem("it has no whole number 'lease_ends_ms'")
        return TableItem(
            key=found.key,
            record=found.pool,
            # Another implementation may have renewed an item of ours and left the attributes that it does not know.
            relay_id=found.relay_id or _relay_id(item.relay_id),
            ends_ms=item.ends_ms,
            lease_ms=item.lease_ms if item.lease_ms is not None and 0 < item.lease_ms <= MAX_LEASE_MS else None,
            region=_region(item.writer),
            left_reason=_REASONS.get(item.left_reason or ""),
            left_detail=(item.left_detail or "")[:DETAIL_LIMIT] or None,
            left_relay_id=_relay_id(item.left_relay_id),
        )


def _parse_text(text: str) -> Registration | InvalidItem:
    try:
        return parse_registration(text.encode(), lenient=True)
    except UnicodeEncodeError:
        return InvalidItem("its registration is not UTF-8")
    except InvalidInput as error:
        where = "; ".join(f"{each.pointer} {each.detail}".strip() for each in error.field_errors)
        return InvalidItem(f"its registration is not valid: {where or error.detail}")


def _relay_id(text: str | None) -> str | None:
    """An id that is too long is dropped: ids are kept for an hour, and other implementations may write anything."""
    return text if text and len(text) <= RELAY_ID_LIMIT else None


def _region(writer: str | None) -> str | None:
    """The region of ``writer``. It is shown and kept for an hour, so what cannot be a region's name is dropped."""
    region = (writer or NO_REGION).partition("/")[0]
    return region if region != NO_REGION and _REGION.fullmatch(region) else None
