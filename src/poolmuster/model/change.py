"""Changes of the list, each with its cause: what watchers are told and ``GET /changes`` remembers."""

from enum import StrEnum

import msgspec

from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool
from poolmuster.model.source import SourceInfo


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


class Deregistration(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A wish to leave at once. With ``relay_id`` it holds only while that relay is the latest to have registered."""

    key: PoolKey
    relay_id: str | None = None
    reason: DeregistrationReason | None = None
    detail: str | None = None


class Removal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why and when (wall clock) a pool left the list."""

    cause: RemovalCause
    reason: DeregistrationReason | None = None
    detail: str | None = None
    at_ms: int


class Change(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One numbered step of the list. ``before`` and ``after`` are the pool's facts where it was, or is, listed.

    ``at_ms`` is the wall clock, for people; ``clock_ms`` the monotonic one, by which its age is judged.
    """

    number: int
    kind: ChangeKind
    at_ms: int
    monotonic_ms: int
    before: Pool | None = None
    after: Pool | None = None
    removal: Removal | None = None
    sources: tuple[SourceInfo, ...] = ()

    @property
    def pool(self) -> Pool | None:
        """The pool it is about, in its latest form; ``None`` for completeness."""
        return self.after or self.before
