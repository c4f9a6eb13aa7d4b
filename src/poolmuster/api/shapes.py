"""The answers that are not in `poolmuster.model.wire`, as types: for the OpenAPI document, and checked against it.

``pool`` members are registrations in canonical form, sent as bytes and never built as objects.
"""

from typing import Any, Literal

import msgspec

from poolmuster.model.change import Cause, ChangeKind, LeaveReason, Removal
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import RegistrationDocument
from poolmuster.model.source import Source
from poolmuster.model.wire import Conflict, LeaseStatus, RouterReplica

Instant = int


class PoolList(msgspec.Struct, kw_only=True):
    """The live pools under the filter, and whether that is all of them."""

    pools: list[RegistrationDocument]
    complete: bool
    revision: str
    sources: tuple[Source, ...]
    unlisted: list[Any] | msgspec.UnsetType = msgspec.UNSET


class ChangeEntry(msgspec.Struct, kw_only=True):
    """One change of the list; what it has beside the first three members depends on its type."""

    revision: str
    type: ChangeKind
    at_ms: Instant
    key: PoolKey | msgspec.UnsetType = msgspec.UNSET
    pool: RegistrationDocument | msgspec.UnsetType = msgspec.UNSET
    cause: Cause | msgspec.UnsetType = msgspec.UNSET
    reason: LeaveReason | msgspec.UnsetType | None = msgspec.UNSET
    detail: str | msgspec.UnsetType | None = msgspec.UNSET
    complete: bool | msgspec.UnsetType = msgspec.UNSET
    sources: tuple[Source, ...] | msgspec.UnsetType = msgspec.UNSET


class OnePool(msgspec.Struct, kw_only=True):
    """One pool: listed, or remembered."""

    key: PoolKey
    listed: bool
    pool: RegistrationDocument | None
    lease: LeaseStatus | None
    conflict: Conflict | None
    removal: Removal | None
    changes: list[ChangeEntry]
    complete: bool
    revision: str
    sources: tuple[Source, ...]


class Changes(msgspec.Struct, kw_only=True):
    """This instance's changes. ``reaches_back``: it still knows the whole time that was asked for."""

    changes: list[ChangeEntry]
    since_at_ms: Instant
    known_since_at_ms: Instant
    reaches_back: bool
    revision: str


class Routers(msgspec.Struct, kw_only=True):
    """The router replicas that relays should know of."""

    routers: tuple[RouterReplica, ...]


class InstanceStatus(msgspec.Struct, kw_only=True):
    """Which instance answers. ``id`` is its boot id."""

    id: str
    version: str
    started_at_ms: Instant
    uptime_ms: int
    stopping: bool


class PoolConflict(msgspec.Struct, kw_only=True):
    """A pool that two relays register in turn."""

    key: PoolKey
    relay_ids: tuple[str, ...]
    since_at_ms: Instant
    last_at_ms: Instant


class HistoryStatus(msgspec.Struct, kw_only=True):
    """The changes that watchers can resume from."""

    changes: int
    bytes: int


class Status(msgspec.Struct, kw_only=True):
    """How this instance is doing."""

    instance: InstanceStatus
    pool_discovery: str
    registration_storage: str
    lease_ms: int
    heartbeat_interval_ms: int
    pools: int
    registrations_bytes: int
    clusters: dict[str, int]
    complete: bool
    revision: str
    sources: tuple[Source, ...]
    conflicts: list[PoolConflict]
    conflicts_count: int
    watchers: int
    connections: int
    history: HistoryStatus
    limits: dict[str, float]


class WatchEvent(msgspec.Struct, kw_only=True):
    """One event of a watch; what it has beside type, revision and id depends on its type."""

    type: Literal["snapshot", "added", "changed", "removed", "completeness", "closing", "ping"]
    revision: str
    id: str
    pools: list[RegistrationDocument] | msgspec.UnsetType = msgspec.UNSET
    pool: RegistrationDocument | msgspec.UnsetType = msgspec.UNSET
    key: PoolKey | msgspec.UnsetType = msgspec.UNSET
    cause: Cause | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType | None = msgspec.UNSET
    detail: str | msgspec.UnsetType | None = msgspec.UNSET
    complete: bool | msgspec.UnsetType = msgspec.UNSET
    sources: tuple[Source, ...] | msgspec.UnsetType = msgspec.UNSET
