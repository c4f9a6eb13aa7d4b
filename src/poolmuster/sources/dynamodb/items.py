"""Items as DynamoDB has them, to the letter of a layout that other implementations read and write too.

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

from typing import Any

import msgspec

from poolmuster.sources.polled.table import POOL, StoredItem

Attributes = dict[str, dict[str, Any]]
"""An item as DynamoDB writes it in JSON. Foreign items may have attributes of any type."""

_TEXTS = ("registration", "relay_id", "writer", "left_relay_id", "left_reason", "left_detail")


def stored_item(attributes: Attributes) -> StoredItem:
    """Read an item, of whichever implementation."""
    return StoredItem(
        key=_text(attributes, "sk") or "",
        registration=_text(attributes, "registration"),
        ends_ms=_number(attributes, "lease_ends_ms"),
        expires_at_s=_number(attributes, "expires_at"),
        lease_ms=_number(attributes, "lease_ms"),
        relay_id=_text(attributes, "relay_id"),
        writer=_text(attributes, "writer"),
        left_relay_id=_text(attributes, "left_relay_id"),
        left_reason=_text(attributes, "left_reason"),
        left_detail=_text(attributes, "left_detail"),
        raw=attributes,
    )


def attributes_of(item: StoredItem) -> Attributes:
    """``item`` as it is put, with whatever else was in it when it was read."""
    kept = {name: value for name, value in (item.raw or {}).items() if not name.startswith("left_")}
    numbers = {"lease_ends_ms": item.ends_ms, "expires_at": item.expires_at_s, "lease_ms": item.lease_ms}
    texts = {"pk": POOL, "sk": item.key} | {name: getattr(item, name) for name in _TEXTS}
    kept |= {name: {"N": str(number)} for name, number in numbers.items() if number is not None}
    return kept | {name: {"S": text} for name, text in texts.items() if text is not None}


def _text(attributes: Attributes, name: str, kind: str = "S") -> str | None:
    value: Any = attributes.get(name)
    text = value.get(kind) if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


def _number(attributes: Attributes, name: str) -> int | None:
    text = _text(attributes, name, "N")
    if text is None or len(text) > 40:
        return None
    try:
        number = float(text) if any(char in text for char in ".eE") else int(text)
    except ValueError:
        return None
    if not abs(number) < 2**63:  # false for NaN too
        return None
    whole = int(number)
    # Only zero is read as zero, which means deregistered.
    return whole if whole or not number else None


class QueryOutput(msgspec.Struct):
    """One page of a query. ``Count`` distinguishes it from an empty object, which a proxy may answer."""

    Items: list[Attributes]
    Count: int
    LastEvaluatedKey: Attributes | None = None
    ConsumedCapacity: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.Count != len(self.Items):
            raise ValueError("the count is not that of the items")


class PutItemOutput(msgspec.Struct, forbid_unknown_fields=True):
    """The answer to a put."""

    ConsumedCapacity: dict[str, Any] | None = None
    Attributes: dict[str, Any] | None = None
    ItemCollectionMetrics: dict[str, Any] | None = None
