"""Changes of the list, each with its cause: what watchers are told and ``GET /changes`` remembers."""

from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool
from poolmuster.model.source import SourceInfo

K = TypeVar("K")
R = TypeVar("R")


class ChangeKind(StrEnum):
    """What happened. The values are the ``type`` of watch events."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    COMPLETENESS = "completeness"


class RemovalCause(StrEnum):
    """Why a pool was removed from a list. ``filtered``: it still lives, but left the filter of this watch."""

    EXPIRED = "expired"
    DEREGISTERED = "deregistered"
    UNLISTED = "unlisted"
    FILTERED = "filtered"


class DeregistrationReason(StrEnum):
    """Why a relay or an operator deregistered a pool."""

    RELAY_STOPPING = "relay_stopping"
    FRONTEND_UNHEALTHY = "frontend_unhealthy"
    NO_MODELS = "no_models"
    OPERATOR = "operator"


DETAIL_LIMIT = 1000
"""Characters of a deregistration's ``detail`` that are kept."""


class Deregistration(msgspec.Struct, Generic[K], frozen=True, gc=False, kw_only=True):
    """A request to end a lease at once. With ``relay_id`` it acts only while that relay registered last."""

    key: K
    relay_id: str | None = None
    reason: DeregistrationReason | None = None
    detail: str | None = None


PoolDeregistration = Deregistration[PoolKey]


class Removal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why and when (wall clock) a pool left the list."""

    cause: RemovalCause
    reason: DeregistrationReason | None = None
    detail: str | None = None
    at_ms: int


class Change(msgspec.Struct, Generic[R], frozen=True, gc=False, kw_only=True):
    """One numbered change of the list. ``before`` and ``after`` are the record as it was, or is, listed.

    ``at_ms`` is the wall clock, for people; ``monotonic_ms`` the monotonic one, by which its age is judged.
    """

    number: int
    kind: ChangeKind
    at_ms: int
    monotonic_ms: int
    before: R | None = None
    after: R | None = None
    removal: Removal | None = None
    sources: tuple[SourceInfo, ...] = ()

    @property
    def record(self) -> R | None:
        """The record that changed, in its latest form; ``None`` for completeness."""
        return self.after or self.before


PoolChange = Change[Pool]
