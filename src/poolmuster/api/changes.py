"""Changes as JSON, for ``GET /changes`` and for the last changes of one pool."""

from typing import Any

import msgspec

from poolmuster.model.change import Change
from poolmuster.model.source import is_complete


def encode_changes(boot_id: str, changes: list[Change]) -> list[dict[str, Any]]:
    """``changes`` as objects that msgspec can encode."""
    return [_encode(boot_id, change) for change in changes]


def _encode(boot_id: str, change: Change) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "revision": f"{boot_id}.{change.number}",
        "type": change.kind,
        "at_ms": change.at_ms,
    }
    if change.pool is None:
        return {**fields, "complete": is_complete(change.sources), "sources": change.sources}
    fields["key"] = change.pool.key
    if change.removal is not None:
        removal = change.removal
        return {**fields, "cause": removal.cause, "reason": removal.reason, "detail": removal.detail}
    return {**fields, "pool": msgspec.Raw(change.pool.body)}
