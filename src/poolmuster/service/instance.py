"""One running instance: its parts, and what is fixed about it for its whole life."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.ports.clock import Clock
from poolmuster.ports.replication_feed import ReplicationFeed
from poolmuster.service.broadcaster import Broadcaster
from poolmuster.service.catalog import Catalog
from poolmuster.service.registrar import Registrar
from poolmuster.service.views import Views

Task = Callable[[], Coroutine[Any, Any, None]]


class InstanceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What ``GET /status`` says that never changes. Instants are wall clock."""

    boot_id: str
    version: str
    started_at_ms: int
    started_ms: int
    pool_discovery: str
    registration_storage: str
    policy: LeasePolicy
    limits: dict[str, float]


class Instance:
    """The parts that the edges use, and the ``tasks`` of those that they do not: sources and timers."""

    def __init__(
        self,
        *,
        info: InstanceInfo,
        clock: Clock,
        catalog: Catalog,
        registrar: Registrar,
        views: Views,
        broadcaster: Broadcaster,
        tasks: tuple[Task, ...],
        replication_feed: ReplicationFeed | None = None,
    ) -> None:
        self.info = info
        self.clock = clock
        self.catalog = catalog
        self.registrar = registrar
        self.views = views
        self.broadcaster = broadcaster
        self.replication_feed = replication_feed
        """What peers read, where the instance has peers."""
        self.tasks: tuple[Task, ...] = (*tasks, broadcaster.run, broadcaster.run_keep_alive)
        """What the supervisor runs, before anything is served."""
        self.stopping = False
        self.stopping_streams = False

    def stop(self) -> None:
        """Not ready from here on, though everything is still served."""
        self.stopping = True

    def close_streams(self) -> None:
        """Send `closing` to every watcher, and accept no new one."""
        self.stopping_streams = True
        self.broadcaster.wake_everyone()
