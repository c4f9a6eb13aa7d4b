"""The JSON of the interface as types, except that of `poolmuster.model.schema`.

`poolmuster.api.encoders` encodes these and the OpenAPI document is made from them, so that the two cannot differ.
"""

from typing import Any

import msgspec

from poolmuster.model.change import ChangeKind, DeregistrationReason, Removal, RemovalCause
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import NonEmpty, NonNegative
from poolmuster.model.schema import Conflict, LeaseStatus, RouterReplica
from poolmuster.model.source import SourceInfo

Maybe = msgspec.UNSET
Unset = msgspec.UnsetType


class ListedLocation(msgspec.Struct, kw_only=True):
    """Where a pool runs."""

    region: str | Unset = Maybe
    availability_zone: str | Unset = Maybe


class ListedModel(msgspec.Struct, kw_only=True):
    """One model that a pool serves. ``context_window`` is in tokens."""

    id: NonEmpty
    aliases: list[NonEmpty] | Unset = Maybe
    context_window: NonNegative | Unset = Maybe


class PoolStatus(msgspec.Struct, kw_only=True):
    """What the service adds to a pool, with ``include=lease``."""

    lease: LeaseStatus | None


class ListedPool(msgspec.Struct, kw_only=True):
    """A pool as lists show it: its registration without ``relay_id``, in canonical form. Unknown members are kept."""

    cluster_id: NonEmpty
    namespace: NonEmpty
    dgd_name: NonEmpty
    frontend_url: str | Unset = Maybe
    weight: NonNegative | Unset = Maybe
    location: ListedLocation | Unset = Maybe
    models: list[ListedModel] | Unset = Maybe
    labels: dict[str, str] | Unset = Maybe
    status: PoolStatus | Unset = Maybe


class PoolListBody(msgspec.Struct, kw_only=True):
    """The live pools under the filter, and whether that is all of them. ``unlisted`` comes when asked for."""

    pools: list[ListedPool]
    complete: bool
    revision: str
    sources: tuple[SourceInfo, ...]
    unlisted: list[dict[str, Any]] | Unset = Maybe


class _Entry(msgspec.Struct, kw_only=True, tag_field="type"):
    revision: str
    at_ms: int


class AddedEntry(_Entry, kw_only=True, tag=ChangeKind.ADDED.value):
    """A pool came onto the list."""

    key: PoolKey
    pool: ListedPool


class ChangedEntry(_Entry, kw_only=True, tag=ChangeKind.CHANGED.value):
    """A pool's facts changed."""

    key: PoolKey
    pool: ListedPool


class RemovedEntry(_Entry, kw_only=True, tag=ChangeKind.REMOVED.value):
    """A pool left the list, with the cause; ``reason`` and ``detail`` are those of a deregistration."""

    key: PoolKey
    cause: RemovalCause
    reason: DeregistrationReason | None
    detail: str | None


class CompletenessEntry(_Entry, kw_only=True, tag=ChangeKind.COMPLETENESS.value):
    """The list became complete or ceased to be, or a source entered another state."""

    complete: bool
    sources: tuple[SourceInfo, ...]


ChangeEntry = AddedEntry | ChangedEntry | RemovedEntry | CompletenessEntry


class OnePool(msgspec.Struct, kw_only=True):
    """One pool, listed or remembered. ``removal`` is the last one, of a pool that is not listed."""

    key: PoolKey
    listed: bool
    pool: ListedPool | None
    lease: LeaseStatus | None
    conflict: Conflict | None
    removal: Removal | None
    changes: list[ChangeEntry]
    complete: bool
    revision: str
    sources: tuple[SourceInfo, ...]


class Changes(msgspec.Struct, kw_only=True):
    """This instance's changes. ``reaches_back``: it still knows the whole time that was asked for."""

    changes: list[ChangeEntry]
    since_at_ms: int
    known_since_at_ms: int
    reaches_back: bool
    revision: str


class Routers(msgspec.Struct, kw_only=True):
    """The router replicas that relays should know of."""

    routers: tuple[RouterReplica, ...]


class InstanceStatus(msgspec.Struct, kw_only=True):
    """Which instance answers. ``id`` is its boot id."""

    id: str
    version: str
    started_at_ms: int
    uptime_ms: int
    stopping: bool


class PoolConflict(msgspec.Struct, kw_only=True):
    """A pool that two relays register in turn."""

    key: PoolKey
    relay_ids: tuple[str, ...]
    since_at_ms: int
    last_at_ms: int


class HistoryStatus(msgspec.Struct, kw_only=True):
    """The changes that watchers can resume from: how many, and their bytes together."""

    changes: int
    bytes: int


class Status(msgspec.Struct, kw_only=True):
    """How this instance is doing. ``clusters`` has the listed pools of each; ``limits`` every ``--limit-...``."""

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
    sources: tuple[SourceInfo, ...]
    conflicts: list[PoolConflict]
    conflicts_count: int
    watchers: int
    connections: int
    history: HistoryStatus
    limits: dict[str, float]


class _Event(msgspec.Struct, kw_only=True, tag_field="type"):
    id: str
    revision: str


class SnapshotEvent(_Event, kw_only=True, tag="snapshot"):
    """The whole list, which replaces all that the watcher had."""

    pools: list[ListedPool]
    complete: bool
    sources: tuple[SourceInfo, ...]
    unlisted: list[dict[str, Any]] | Unset = Maybe


class AddedEvent(_Event, kw_only=True, tag=ChangeKind.ADDED.value):
    """A pool came onto the list under this filter."""

    pool: ListedPool


class ChangedEvent(_Event, kw_only=True, tag=ChangeKind.CHANGED.value):
    """A pool's facts changed."""

    pool: ListedPool


class RemovedEvent(_Event, kw_only=True, tag=ChangeKind.REMOVED.value):
    """A pool left the list under this filter."""

    key: PoolKey
    cause: RemovalCause
    reason: DeregistrationReason | None
    detail: str | None


class CompletenessEvent(_Event, kw_only=True, tag=ChangeKind.COMPLETENESS.value):
    """The list became complete or ceased to be, or a source entered another state."""

    complete: bool
    sources: tuple[SourceInfo, ...]


class ClosingEvent(_Event, kw_only=True, tag="closing"):
    """The last event of a stream: ``shutdown``, ``max_age``, ``too_slow``, or ``unauthorized``.

    Connect again, with the last id; after ``unauthorized`` with other credentials.
    """

    reason: str


class PingEvent(_Event, kw_only=True, tag="ping"):
    """A sign of life where nothing else was sent; in server-sent events it is a comment."""


WatchEvent = SnapshotEvent | AddedEvent | ChangedEvent | RemovedEvent | CompletenessEvent | ClosingEvent | PingEvent
