"""Router replicas that are named by flags."""

import asyncio

from poolmuster.model.schema import RouterReplica
from poolmuster.ports.source import Sink
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.updates import SourceUpdate


class StaticRouters:
    """`poolmuster.ports.source.Source` of router replicas that never change, so the list never waits for it."""

    def __init__(self, routers: tuple[RouterReplica, ...]) -> None:
        self._routers = routers

    def statuses(self, now_ms: int) -> tuple[SourceStatus, ...]:
        return ()

    async def run(self, sink: Sink) -> None:
        await sink.apply(SourceUpdate(started_ms=0, routers=self._routers))
        await asyncio.Event().wait()
