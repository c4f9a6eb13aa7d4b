"""What is listed: the join of live records with what the topology places and what is cordoned (rules L1, L10).

| live | placed by the topology | cordoned | listed |
| --- | --- | --- | --- |
| no | any | any | no (`NO_REGISTRATION` where it is placed) |
| yes | no | any | no (`NOT_IN_TOPOLOGY`) |
| yes | yes, or there is no topology | no | the record |
| yes | yes, or there is no topology | yes | the record with its status |
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Generic

from poolmuster.registry.updates import K, Placements, R


class UnlistedReason(StrEnum):
    """Why a key is not listed."""

    NO_REGISTRATION = "no_registration"
    NOT_IN_TOPOLOGY = "not_in_topology"


class Join(Generic[K, R]):
    """The inputs of the join beside the live records.

    With a topology nothing is placed before its first placements. ``with_status`` returns the listed form of a live
    record, which is the record itself where no cordon covers it.
    """

    def __init__(self, *, has_topology: bool = False, with_status: Callable[[R], R] = lambda record: record) -> None:
        self._placed: frozenset[K] | None = frozenset() if has_topology else None
        self._with_status = with_status

    def place(self, placements: Placements[K]) -> frozenset[K]:
        """Apply placements; returns the keys that were placed or are no longer."""
        before = self._placed or frozenset()
        self._placed = placements.added if placements.whole else (before - placements.removed) | placements.added
        return before ^ self._placed

    def is_placed(self, key: K) -> bool:
        return self._placed is None or key in self._placed

    def listed(self, live: R | None) -> R | None:
        """The listed form of ``live``; ``None`` where it is not listed."""
        if live is None or not self.is_placed(live.key):
            return None
        return self._with_status(live)

    def unlisted_reason(self, key: K, live: R | None) -> UnlistedReason | None:
        """Why ``key`` is not listed; ``None`` where it is, or where neither input has it."""
        if live is not None:
            return None if self.is_placed(key) else UnlistedReason.NOT_IN_TOPOLOGY
        return UnlistedReason.NO_REGISTRATION if self._placed is not None and key in self._placed else None
