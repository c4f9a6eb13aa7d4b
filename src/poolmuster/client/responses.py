"""The service's responses as values.

Pools stay plain objects of the standard library's JSON, so that unknown fields, and integers of any size, are kept.
Kinds, states, causes and reasons are plain strings, as a newer service may have more of them.
"""

from typing import Any

import msgspec

from poolmuster.model.key import KEY_PARTS, PoolKey
from poolmuster.model.schema import RegistrationResponse

Document = dict[str, Any]
"""A JSON object as it came."""


class SourceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One source of a list, as `poolmuster.model.source.SourceInfo`, with the kinds and reasons of any version."""

    kind: str = ""
    name: str = ""
    state: str = "unknown"
    reason: str | None = None
    detail: str | None = None
    since_at_ms: int | None = None
    last_good_at_ms: int | None = None
    clears_in_ms: int | None = None

    @property
    def is_fresh(self) -> bool:
        return self.state == "fresh"

    def later(self, passed_ms: int) -> "SourceReport":
        """The same report ``passed_ms`` later, if nothing else has happened."""
        if self.clears_in_ms is None:
            return self
        return msgspec.structs.replace(self, clears_in_ms=max(0, self.clears_in_ms - passed_ms))


class PoolList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of pools. ``body`` is the response byte for byte; ``instance`` is the boot id of the one that sent it."""

    pools: tuple[Document, ...]
    complete: bool
    revision: str
    sources: tuple[SourceReport, ...]
    instance: str | None = None
    body: bytes = b""


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Any other response: the JSON object, its bytes, and the boot id of the instance that sent it."""

    document: Document
    body: bytes
    instance: str | None = None
    status: int = 200


class RegisterResult(RegistrationResponse, frozen=True, kw_only=True):
    """The response to a registration. ``created``: the pool was not listed before."""

    created: bool


def key_of(document: Any) -> PoolKey | None:
    """The key that the members of an object name, or ``None`` where it has none."""
    if not isinstance(document, dict):
        return None
    parts = [part for name in KEY_PARTS if isinstance(part := document.get(name), str) and part]
    return PoolKey(*parts) if len(parts) == len(KEY_PARTS) else None


def objects_in(value: Any) -> list[Document]:
    """The objects in an array; none where the value is not an array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def strings_of(value: Any) -> list[str]:
    """The strings in an array that are not empty; none where the value is not an array."""
    return [item for item in value if item and isinstance(item, str)] if isinstance(value, list) else []


def model_names(pool: Document) -> list[str]:
    """Every id and alias under which a pool serves a model, in the document's order."""
    return [
        name
        for model in objects_in(pool.get("models"))
        for name in strings_of([model.get("id"), *strings_of(model.get("aliases"))])
    ]


def read_sources(value: Any) -> tuple[SourceReport, ...]:
    """The sources of a list. One that cannot be read becomes an unknown source, which is never fresh."""
    return tuple(map(_read_source, value)) if isinstance(value, list) else ()


def _read_source(value: Any) -> SourceReport:
    try:
        return msgspec.convert(value, SourceReport)
    except msgspec.ValidationError:
        name = value.get("name") if isinstance(value, dict) else None
        return SourceReport(name=name if isinstance(name, str) else "")


def read_pool_list(document: Document, body: bytes, instance: str | None) -> PoolList | None:
    """The list in a response, or ``None`` if the object is none."""
    pools, complete = document.get("pools"), document.get("complete")
    if not isinstance(pools, list) or not isinstance(complete, bool) or any(key_of(pool) is None for pool in pools):
        return None
    return PoolList(
        pools=tuple(pools),
        complete=complete,
        revision=str(document.get("revision", "")),
        sources=read_sources(document.get("sources")),
        instance=instance,
        body=body,
    )
