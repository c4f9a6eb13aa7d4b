"""The events of a watch, read from lines of JSON.

An event of a type that this version does not know is nothing. One of a known type that lacks what the type must have
is `MalformedEvent`: to skip it would let the mirror part from the list in silence.
"""

import json
from typing import Any

import msgspec

from poolmuster.client.errors import InvalidResponse
from poolmuster.client.responses import Document, SourceReport, key_of, read_sources
from poolmuster.model.key import PoolKey

EVENT_ID_LIMIT = 256


class MalformedEvent(InvalidResponse):
    """A line of a watch that cannot be understood, so that what it stands for is lost."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What every event has.

    ``id`` resumes a watch after it; ``document`` is the event as it came, in a line of ``size_bytes``.
    """

    type: str
    id: str | None
    revision: str | None
    document: Document
    size_bytes: int = 0


class Snapshot(Event, frozen=True, kw_only=True):
    """The whole list, which replaces all that was known."""

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
    """The event in one line, ``None`` where there is none that is known. Raises `MalformedEvent`."""
    if not line.strip():
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent("A line of the watch is not JSON.") from error
    reader = _READERS.get(_text(document.get("type")) or "") if isinstance(document, dict) else None
    return None if reader is None else msgspec.structs.replace(reader(document), size_bytes=len(line))


def _common(document: Document) -> dict[str, Any]:
    return {
        "type": document["type"],
        "id": _event_id(document.get("id")),
        "revision": _text(document.get("revision")),
        "document": document,
    }


def _event_id(value: Any) -> str | None:
    """An id is sent back in a header, so only what may stand in one counts."""
    usable = isinstance(value, str) and 0 < len(value) <= EVENT_ID_LIMIT and value.isascii() and value.isprintable()
    return value if usable else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _snapshot(document: Document) -> Snapshot:
    pools, complete = document.get("pools"), document.get("complete")
    if not isinstance(pools, list) or not isinstance(complete, bool):
        raise MalformedEvent("A snapshot of the watch lacks its pools or whether it is complete.")
    keyed = {key_of(pool): pool for pool in pools}
    known = {key: pool for key, pool in keyed.items() if key is not None}
    if len(known) != len(pools):
        raise MalformedEvent("A snapshot of the watch has a pool without a key, or one key twice.")
    return Snapshot(**_common(document), pools=known, complete=complete, sources=read_sources(document.get("sources")))


def _upserted(document: Document) -> Upserted:
    pool = document.get("pool")
    key = key_of(pool)
    if key is None or not isinstance(pool, dict):
        raise MalformedEvent("An event of the watch lacks its pool.")
    return Upserted(**_common(document), key=key, pool=pool)


def _removed(document: Document) -> Removed:
    key = key_of(document.get("key"))
    if key is None:
        raise MalformedEvent("A removal in the watch lacks its key.")
    cause, reason = _text(document.get("cause")), _text(document.get("reason"))
    return Removed(**_common(document), key=key, cause=cause, reason=reason)


def _completeness(document: Document) -> CompletenessChanged:
    complete = document.get("complete")
    if not isinstance(complete, bool):
        raise MalformedEvent("An event of the watch does not say whether the list is complete.")
    return CompletenessChanged(**_common(document), complete=complete, sources=read_sources(document.get("sources")))


def _closing(document: Document) -> Closing:
    return Closing(**_common(document), reason=_text(document.get("reason")))


def _ping(document: Document) -> Ping:
    return Ping(**_common(document))


_READERS = {
    "snapshot": _snapshot,
    "added": _upserted,
    "changed": _upserted,
    "removed": _removed,
    "completeness": _completeness,
    "closing": _closing,
    "ping": _ping,
}
