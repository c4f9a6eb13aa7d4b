"""One running instance: its parts, and what is fixed about it for its whole life."""

import msgspec

from poolmuster.model.schema import RouterReplica
from poolmuster.ports.clock import Clock
from poolmuster.ports.replication_feed import ReplicationFeed
from poolmuster.ports.store import RegistrationStore
from poolmuster.service.broadcaster import Publisher
from poolmuster.service.catalog import Catalog
from poolmuster.service.registrar import Registrar
from poolmuster.service.views import Views


class InstanceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What ``GET /status`` says that never changes. Instants are wall clock."""

    boot_id: str
    version: str
    started_at_ms: int
    started_ms: int
    pool_discovery: str
    registration_storage: str
    lease_ms: int
    heartbeat_interval_ms: int
    routers: tuple[RouterReplica, ...]
    limits: dict[str, float]


class Instance:
    """The parts that the edges speak to."""

    def __init__(
        self,
        *,
        facts: InstanceInfo,
        clock: Clock,
        store: RegistrationStore,
        catalog: Catalog,
        registrar: Registrar,
        views: Views,
        publisher: Publisher,
        sharing: ReplicationFeed | None = None,
    ) -> None:
        self.info = facts
        self.clock = clock
        self.store = store
        self.catalog = catalog
        self.registrar = registrar
        self.views = views
        self.publisher = publisher
        self.replication_feed = sharing
        """What peers read, where there are to be any."""
        self.stopping = False
        self.stopping_streams = False

    def stop(self) -> None:
        """Not ready from here on, though everything is still served."""
        self.stopping = True

    def close_streams(self) -> None:
        """Tell watchers that this instance goes away; no new ones are taken."""
        self.stopping_streams = True
        self.publisher.wake_everyone()
