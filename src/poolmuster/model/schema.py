"""The JSON shapes of the HTTP interface that are not the pool itself, shared by the service and its clients.

The paths are version 1 and only grow: readers ignore members they do not know.
Instants end in ``_at_ms`` (wall clock, milliseconds since 1970), durations in ``_ms``.
"""

import msgspec

from poolmuster.model.errors import FieldError
from poolmuster.model.source import SourceInfo


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The lease a registration was given. Renew after ``heartbeat_interval_ms``."""

    duration_ms: int
    heartbeat_interval_ms: int
    ends_at_ms: int


class RouterReplica(msgspec.Struct, frozen=True):
    """One running global router that relays should know of."""

    id: str
    url: str


class RegistrationResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a registration. ``conflict`` is set while another relay registers the same pool in turn."""

    lease: LeaseTerms
    routers: tuple[RouterReplica, ...] = ()
    conflict: bool = False


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, in the form of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[FieldError, ...] = ()
    sources: tuple[SourceInfo, ...] = ()


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two relays that register one pool in turn."""

    relay_ids: tuple[str, ...]
    since_at_ms: int
    last_at_ms: int


class LeaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's lease as this instance holds it."""

    duration_ms: int
    ends_at_ms: int
    relay_id: str | None
