"""Items of the table, to the letter of a layout that other implementations read and write too.

| attribute | type | meaning |
| --- | --- | --- |
| `pk` | S | `POOL` |
| `sk` | S | the key's stored form |
| `registration` | S | the JSON the relay sent |
| `lease_ends_ms` | N | end of the lease by the writer, ms since 1970; 0 where it was deregistered |
| `expires_at` | N | an hour after that, in seconds: the table's time to live |
| `lease_ms`, `relay_id`, `writer` | N, S, S | ours only |
| `left_relay_id`, `left_reason`, `left_detail` | S | ours only, of a deregistration |
"""

import json
import re
from typing import Any

import msgspec

from poolmuster.model.change import DETAIL_LIMIT, DeregistrationReason, PoolDeregistration
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import RELAY_ID_LIMIT, Pool, Registration, parse_registration
from poolmuster.registry.table_scan import TableItem

PARTITION = "POOL"
TIME_TO_LIVE_S = 3600
MAX_LEASE_MS = 86_400_000
NO_REGION = "-"
CARRIED_LIMIT_BYTES = 64 * 1024 * 1024
"""Of texts that failed reads have parsed; those of the last good read are apart."""


_REGION = re.compile(r"[A-Za-z0-9._-]{1,63}")

Attributes = dict[str, dict[str, Any]]
"""An item as DynamoDB writes it in JSON. Foreign items may bear attributes of any type."""


class InvalidItem(Exception):
    """An item that cannot be read; the text says why. It is skipped and hides no other."""


def item_key(key: PoolKey) -> Attributes:
    """The primary key under which ``key`` is stored."""
    return {"pk": {"S": PARTITION}, "sk": {"S": key.storage_key}}


def live_item(registration: Registration, *, ends_ms: int, lease_ms: int, writer: str) -> Attributes:
    """The item of a registration whose lease ends at ``ends_ms`` by the table's clock."""
    item = item_key(registration.key) | {
        "registration": {"S": registration_text(registration)},
        "lease_ends_ms": {"N": str(ends_ms)},
        "expires_at": {"N": str(ends_ms // 1000 + TIME_TO_LIVE_S)},
        "lease_ms": {"N": str(lease_ms)},
        "writer": {"S": writer},
    }
    if registration.relay_id is not None:
        item["relay_id"] = {"S": registration.relay_id}
    return item


def deregistered_item(item: Attributes, deregistration: PoolDeregistration, *, now_ms: int) -> Attributes:
    """``item``, as last read, once ``departure`` has taken effect."""
    left = {name: value for name, value in item.items() if not name.startswith("left_")}
    left["lease_ends_ms"] = {"N": "0"}
    left["expires_at"] = {"N": str(now_ms // 1000 + TIME_TO_LIVE_S)}
    if deregistration.relay_id is not None:
        left["left_relay_id"] = {"S": deregistration.relay_id}
    if deregistration.reason is not None:
        left["left_reason"] = {"S": deregistration.reason}
    if deregistration.detail:
        left["left_detail"] = {"S": deregistration.detail}
    return left


def registration_text(registration: Registration) -> str:
    """The registration as JSON, with its relay's id."""
    body = registration.pool.body.decode()
    if registration.relay_id is None:
        return body
    return f'{body[:-1]},"relay_id":{json.dumps(registration.relay_id, ensure_ascii=False)}}}'


class ParsedItems:
    """Parses items, and remembers what a registration's text came to, good or not: it is the same at every read."""

    def __init__(self) -> None:
        self._parsed: dict[str, Registration | InvalidItem] = {}
        self._kept: dict[str, Registration | InvalidItem] = {}
        self._carried_bytes = 0
        self.parsed_bytes = 0
        """How much text was read so far that was not known before."""

    def begin_scan(self) -> None:
        """A read begins. What one that failed halfway has parsed is still good.

        Were it forgotten, a table that takes longer to parse than a read may take would never be read.
        """
        for text, found in self._kept.items():
            if text not in self._parsed and self._carried_bytes < CARRIED_LIMIT_BYTES:
                self._carried_bytes += len(text)
                self._parsed[text] = found
        self._kept = {}

    def end_scan(self) -> None:
        """A whole read has ended: forget the texts that it did not have."""
        self._parsed, self._kept = self._kept, {}
        self._carried_bytes = 0

    def parse(self, item: Attributes) -> TableItem[PoolKey, Pool]:
        """Read one item, of whichever implementation. Raises `InvalidItem`."""
        text = _string(item, "registration")
        if text is None:
            raise InvalidItem("it has no string 'registration'")
        found = self._parsed.get(text)
        if found is None:
            found = self._registration(text)
            self.parsed_bytes += len(text)
        self._kept[text] = found
        if isinstance(found, InvalidItem):
            raise InvalidItem(str(found))
        registration = found
        if _string(item, "sk") != registration.key.storage_key:
            raise InvalidItem(f"its sort key is not that of its registration, {registration.key}")
        ends_ms = _number(item, "lease_ends_ms")
        if ends_ms is None:
            raise InvalidItem("it has no whole number 'lease_ends_ms'")
        lease_ms = _number(item, "lease_ms")
        region = (_string(item, "writer") or NO_REGION).partition("/")[0]
        if _REGION.fullmatch(region) is None:
            # It is shown to people and kept for an hour, so not just anything will do.
            region = NO_REGION
        reason = _string(item, "left_reason")
        return TableItem(
            key=registration.key,
            record=registration.pool,
            # Another implementation may have renewed an item of ours and left the attributes that it does not know.
            relay_id=registration.relay_id or _relay_id(item, "relay_id"),
            ends_ms=ends_ms,
            lease_ms=lease_ms if lease_ms is not None and 0 < lease_ms <= MAX_LEASE_MS else None,
            region=None if region == NO_REGION else region,
            left_reason=DeregistrationReason(reason) if reason in set(DeregistrationReason) else None,
            left_detail=(_string(item, "left_detail") or "")[:DETAIL_LIMIT] or None,
            left_relay_id=_relay_id(item, "left_relay_id"),
        )

    @staticmethod
    def _registration(text: str) -> Registration | InvalidItem:
        try:
            return parse_registration(text.encode(), lenient=True)
        except UnicodeEncodeError:
            return InvalidItem("its registration is not UTF-8")
        except InvalidInput as error:
            where = "; ".join(f"{fault.pointer} {fault.detail}".strip() for fault in error.field_errors)
            return InvalidItem(f"its registration is not valid: {where or error.detail}")


def _string(item: Attributes, name: str) -> str | None:
    value: Any = item.get(name)
    text = value.get("S") if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


def _relay_id(item: Attributes, name: str) -> str | None:
    """What is too long for one is none: it is kept for an hour, and other implementations may write anything."""
    text = _string(item, name)
    return text if text and len(text) <= RELAY_ID_LIMIT else None


def _number(item: Attributes, name: str) -> int | None:
    value: Any = item.get(name)
    text = value.get("N") if isinstance(value, dict) else None
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        number = float(text) if any(char in text for char in ".eE") else int(text)
    except ValueError:
        return None
    if not abs(number) < 2**63:  # nor is it where this is no number
        return None
    whole = int(number)
    # Nothing but zero may come out as zero: it has a meaning of its own.
    return whole if whole or not number else None


class QueryOutput(msgspec.Struct):
    """One page of a query, as DynamoDB answers it. ``Count`` tells it from an empty object that anybody may answer."""

    Items: list[Attributes]
    Count: int
    LastEvaluatedKey: Attributes | None = None
    ConsumedCapacity: dict[str, Any] | None = None


class PutItemOutput(msgspec.Struct, forbid_unknown_fields=True):
    """What DynamoDB answers to a put."""

    ConsumedCapacity: dict[str, Any] | None = None
    Attributes: dict[str, Any] | None = None
    ItemCollectionMetrics: dict[str, Any] | None = None
