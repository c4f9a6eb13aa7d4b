"""The events of a watch, read from lines of JSON.

An event of a type that this version does not know is skipped. One of a known type that lacks a member which the type
must have is `MalformedEvent`: without it the mirror would differ from the list, and nothing would show that.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from poolmuster.client.errors import InvalidResponse
from poolmuster.client.responses import Document, SourceReport, key_of, read_sources
from poolmuster.model.key import PoolKey

EVENT_ID_LIMIT = 256

Common = dict[str, Any]
"""The members of `Event`, by name."""


class MalformedEvent(InvalidResponse):
    """A line of a watch that cannot be understood, so that its content is lost."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The members of every event.

    ``id`` resumes a watch after it; ``document`` is the event as it came, in a line of ``size_bytes``.
    """

    type: str
    id: str | None
    revision: str | None
    document: Document
    size_bytes: int = 0


class WatchSnapshot(Event, frozen=True, kw_only=True):
    """The whole list, which replaces all earlier content."""

    pools: dict[PoolKey, Document]
    complete: bool
    sources: tuple[SourceReport, ...]


class Upserted(Event, frozen=True, kw_only=True):
    """A pool was ``added``, or its facts ``changed``."""

    key: PoolKey
    pool: Document


class Removed(Event, frozen=True, kw_only=True):
    """A pool left the list."""

    key: PoolKey
    cause: str | None
    reason: str | None


class CompletenessChanged(Event, frozen=True, kw_only=True):
    """Whether the list is complete, and the state of its sources."""

    complete: bool
    sources: tuple[SourceReport, ...]


class Closing(Event, frozen=True, kw_only=True):
    """The service ends this watch in good order."""

    reason: str | None


class Ping(Event, frozen=True, kw_only=True):
    """A sign of life."""


def read_event(line: bytes) -> Event | None:
    """The event in one line, ``None`` for a blank line or an unknown type. Raises `MalformedEvent`."""
    if not line.strip():
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent("A line of the watch is not JSON.") from error
    reader = _READERS.get(_text(document.get("type")) or "") if isinstance(document, dict) else None
    if reader is None:
        return None
    common = {
        "type": document["type"],
        "id": _event_id(document.get("id")),
        "revision": _text(document.get("revision")),
        "document": document,
        "size_bytes": len(line),
    }
    return reader(document, common)


def _event_id(value: Any) -> str | None:
    """An id is sent back in a header, so only what may stand in one counts."""
    usable = isinstance(value, str) and 0 < len(value) <= EVENT_ID_LIMIT and value.isascii() and value.isprintable()
    return value if usable else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _snapshot(document: Document, common: Common) -> WatchSnapshot:
    pools, complete = document.get("pools"), document.get("complete")
    if not isinstance(pools, list) or not isinstance(complete, bool):
        raise MalformedEvent("A snapshot of the watch lacks its pools or whether it is complete.")
    keyed = {key: pool for pool in pools if (key := key_of(pool)) is not None}
    if len(keyed) != len(pools):
        raise MalformedEvent("A snapshot of the watch has a pool without a key, or one key twice.")
    return WatchSnapshot(**common, pools=keyed, complete=complete, sources=read_sources(document.get("sources")))


def _upserted(document: Document, common: Common) -> Upserted:
    pool = document.get("pool")
    key = key_of(pool)
    if key is None or not isinstance(pool, dict):
        raise MalformedEvent("An event of the watch lacks its pool.")
    return Upserted(**common, key=key, pool=pool)


def _removed(document: Document, common: Common) -> Removed:
    key = key_of(document.get("key"))
    if key is None:
        raise MalformedEvent("A removal in the watch lacks its key.")
    return Removed(**common, key=key, cause=_text(document.get("cause")), reason=_text(document.get("reason")))


def _completeness(document: Document, common: Common) -> CompletenessChanged:
    complete = document.get("complete")
    if not isinstance(complete, bool):
        raise MalformedEvent("An event of the watch does not say whether the list is complete.")
    return CompletenessChanged(**common, complete=complete, sources=read_sources(document.get("sources")))


_READERS: dict[str, Callable[[Document, Common], Event]] = {
    "snapshot": _snapshot,
    "added": _upserted,
    "changed": _upserted,
    "removed": _removed,
    "completeness": _completeness,
    "closing": lambda document, common: Closing(**common, reason=_text(document.get("reason"))),
    "ping": lambda _, common: Ping(**common),
}
