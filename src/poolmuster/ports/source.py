"""Anything that the list depends on: a registration store, a topology, the router replicas.

Data flows one way. A source sends what it found to its sink and never asks anything of it; the catalog asks a source
for nothing but its status.
"""

from typing import Any, Protocol

from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.updates import SourceUpdate


class Sink(Protocol):
    """What a source sends to. The catalog implements it, one for each source."""

    async def apply(self, update: SourceUpdate[Any, Any]) -> None:
        """Apply ``update``; returns when the whole of it is applied.

        A long update is applied in slices between which other tasks run. Updates of one source are applied one after
        the other, so a source that sends faster than they are applied waits here. It is applied whole even where the
        task that waits here is cancelled.
        """
        ...

    def statuses_changed(self) -> None:
        """A status changed without an update: a read failed, a peer was lost."""
        ...


class Source(Protocol):
    """One source."""

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        """The status of each part of this source at ``now_ms`` of the monotonic clock.

        Pure: it changes nothing, waits for nothing and calls nothing back.
        """
        ...

    async def run(self, sink: Sink) -> None:
        """Read, watch, resolve: whatever the source does by itself. Runs until cancelled."""
        ...
