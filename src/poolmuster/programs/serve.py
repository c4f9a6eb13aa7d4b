"""The program ``poolmuster serve``: first the functions that build an instance, then those that run it."""

import functools

import msgspec
import structlog
import uvloop

from poolmuster import __version__
from poolmuster.api.metrics import Metrics
from poolmuster.api.pools import service_headers
from poolmuster.api.request import ApiLimits
from poolmuster.api.routes import build_apps
from poolmuster.model.registration import Pool
from poolmuster.platform.lease_clock import SystemClock, TickingLeaseClock
from poolmuster.ports.clock import Clock
from poolmuster.ports.source import Source
from poolmuster.programs.listener import HEALTH_CONNECTIONS, Listener
from poolmuster.programs.metrics.peers import PeerMetrics
from poolmuster.programs.metrics.process import ProcessMetrics
from poolmuster.programs.metrics.table import TableMetrics
from poolmuster.programs.settings.serve import ServeSettings
from poolmuster.programs.stores import build_store
from poolmuster.programs.supervisor import StopStep, Supervisor, TaskFunction, gc_freeze_loop
from poolmuster.registry.change_log import ChangeLog
from poolmuster.service.broadcaster import Broadcaster
from poolmuster.service.catalog import Catalog
from poolmuster.service.expiry import ExpiryTimer
from poolmuster.service.instance import Instance, InstanceInfo
from poolmuster.service.registrar import Registrar
from poolmuster.service.views import Views
from poolmuster.sources.peers.store import PeerStore
from poolmuster.sources.routers import StaticRouters

STOP_GRACE_S = 3.8
"""How long requests in flight and watchers have at the end."""

STOP_LIMIT_MS = 4_750
"""From the end of ``--shutdown-delay-secs`` to the end of the last stop step; see `relay.STOP_LIMIT_MS`."""

log = structlog.get_logger("poolmuster.serve")


def build_instance(settings: ServeSettings, clock: Clock, metrics: Metrics, boot_id: str) -> Instance:
    """The parts of one instance, none of them started. Raises `UsageError`, `StoreConfigError`."""
    limits, policy = settings.limits, settings.policy
    lease_clock = TickingLeaseClock(clock.monotonic_ms)
    store = build_store(
        settings,
        clock,
        lease_clock,
        boot_id,
        TableMetrics(metrics.registry) if settings.dynamodb else None,
        PeerMetrics(metrics.registry) if settings.peers.services else None,
    )
    broadcaster = Broadcaster(clock, metrics.published)
    change_log: ChangeLog[Pool] = ChangeLog(limits.history_changes, limits.history_bytes, clock.monotonic_ms())
    catalog = Catalog(
        boot_id=boot_id,
        clock=clock,
        lease_clock=lease_clock,
        expiry=store.expiry,
        change_log=change_log,
        wake=broadcaster.wake,
    )
    sources: tuple[Source, ...] = (store, StaticRouters(settings.routers))
    return Instance(
        info=_facts(settings, clock, boot_id),
        clock=clock,
        catalog=catalog,
        registrar=Registrar(clock=clock, store=store, catalog=catalog, limits=limits.registrar, policy=policy),
        views=Views(catalog.pools, change_log),
        broadcaster=broadcaster,
        tasks=(
            *(functools.partial(source.run, catalog.attach(source)) for source in sources),
            ExpiryTimer(clock, lease_clock, catalog).run,
        ),
        replication_feed=store.replication_feed if isinstance(store, PeerStore) else None,
    )


def _facts(settings: ServeSettings, clock: Clock, boot_id: str) -> InstanceInfo:
    limits = settings.limits
    return InstanceInfo(
        boot_id=boot_id,
        version=__version__,
        started_at_ms=clock.wall_ms(),
        started_ms=clock.monotonic_ms(),
        pool_discovery=settings.pool_discovery,
        registration_storage=settings.registration_storage,
        policy=settings.policy,
        limits={name: getattr(limits, name) for name in limits.__struct_fields__},
    )


def serve(settings: ServeSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises `CannotListen` if an address cannot be bound; before that, `UsageError` and `StoreConfigError`.
    """
    clock = SystemClock()
    supervisor = Supervisor("serve", clock)
    health_connections = HEALTH_CONNECTIONS if settings.listen.health_listen is not None else 0
    connections = supervisor.limit_connections(settings.limits.connections, health_connections)
    metrics = Metrics()
    http_limits = msgspec.structs.replace(settings.limits.http, connections=connections)
    listener = Listener(settings.listen, http_limits, clock)
    instance = build_instance(settings, clock, metrics, supervisor.boot_id)
    listener.register_metrics(metrics.registry)
    listener.bind()
    main = functools.partial(_serve, supervisor, settings, instance, metrics, listener)
    supervisor.run(main, loop_factory=uvloop.new_event_loop)


async def _serve(
    supervisor: Supervisor, settings: ServeSettings, instance: Instance, metrics: Metrics, listener: Listener
) -> None:
    limits = settings.limits
    apps = build_apps(
        instance,
        metrics,
        ApiLimits(
            body_bytes=limits.body_bytes,
            streams=limits.streams,
            streams_per_credential=limits.streams_per_credential,
        ),
        listener.counters,
        listener.rules,
    )
    start = functools.partial(listener.start, apps.main, apps.health, instance.info.boot_id, service_headers(instance))
    tasks: list[TaskFunction] = [
        *instance.tasks,
        *listener.tasks,
        ProcessMetrics(metrics.registry).run,
        gc_freeze_loop,
    ]
    delay_s = settings.shutdown_delay_s
    stop_steps = _stop_steps(instance, listener, delay_s)
    await supervisor.supervise(tasks, start=start, stop_steps=stop_steps, delay_s=delay_s)


def _stop_steps(instance: Instance, listener: Listener, delay_s: float) -> tuple[StopStep, StopStep]:
    async def drain() -> None:
        instance.stop()
        listener.drain()
        await instance.clock.sleep_ms(delay_s * 1000)

    async def close() -> None:
        instance.close_streams()
        await listener.stop(STOP_GRACE_S)

    ends_by_ms = delay_s * 1000 + STOP_LIMIT_MS
    return StopStep(drain, ends_by_ms), StopStep(close, ends_by_ms)
