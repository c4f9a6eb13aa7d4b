"""The program ``poolmuster serve``: parts put together, tasks supervised, an orderly end."""

import asyncio
import contextlib
import functools
import gc
import logging
import resource
import secrets
import signal
from collections.abc import Awaitable, Callable

import msgspec
import structlog
import uvloop

from poolmuster import __version__
from poolmuster.api.metrics import Metrics
from poolmuster.api.routes import ApiLimits, build_apps, service_headers
from poolmuster.model.change import ChangeKind, PoolChange
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool
from poolmuster.model.source import is_complete
from poolmuster.platform.clock import SystemClock, TickingLeaseClock
from poolmuster.ports.clock import Clock
from poolmuster.ports.source import Source
from poolmuster.programs.listener import HEALTH_CONNECTIONS, Listener
from poolmuster.programs.metrics.peers import PeerMetrics
from poolmuster.programs.metrics.process import ProcessMetrics
from poolmuster.programs.metrics.table import TableMetrics
from poolmuster.programs.settings.serve import ServeSettings
from poolmuster.programs.stores import build_store
from poolmuster.registry.change_log import ChangeLog
from poolmuster.service.broadcaster import Publisher
from poolmuster.service.catalog import Catalog, Hooks
from poolmuster.service.expiry import ExpiryTimer
from poolmuster.service.instance import Instance, InstanceInfo
from poolmuster.service.registrar import Registrar
from poolmuster.service.views import Views
from poolmuster.sources.peers.store import PeerStore
from poolmuster.sources.routers import StaticRouters

SPARE_FILES = 256
"""Open files beside connections: the listeners, the log, what a library opens for a moment."""

STOP_GRACE_S = 3.8
"""What requests in flight and watchers get at the end; the process is out within five seconds."""

FREEZE_EVERY_S = 1.0

log = structlog.get_logger("poolmuster.serve")
_levels = logging.getLogger("poolmuster.serve")


def new_boot_id() -> str:
    """A name for one life of this process, unlike any other's."""
    return secrets.token_hex(6)


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
    publisher = Publisher(clock, metrics.published)
    change_log: ChangeLog[Pool] = ChangeLog(limits.history_changes, limits.history_bytes, clock.monotonic_ms())
    catalog = Catalog(
        boot_id=boot_id,
        clock=clock,
        lease_clock=lease_clock,
        expiry=store.expiry,
        change_log=change_log,
        wake=publisher.wake,
        hooks=_hooks(metrics),
    )
    sources: tuple[Source, ...] = (store, StaticRouters(settings.routers))
    return Instance(
        info=_facts(settings, clock, boot_id),
        clock=clock,
        catalog=catalog,
        registrar=Registrar(clock=clock, store=store, catalog=catalog, limits=limits.registrar, policy=policy),
        views=Views(catalog.pools, change_log),
        publisher=publisher,
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


def _hooks(metrics: Metrics) -> Hooks:
    def on_change(change: PoolChange) -> None:
        metrics.changed(change)
        _log_change(change)

    def on_conflict(key: PoolKey, relay_ids: tuple[str, ...]) -> None:
        metrics.conflicts.inc()
        log.warning("Relays register one pool in turn", pool=str(key), relay_ids=list(relay_ids))

    return Hooks(on_change, on_conflict)


def _log_change(change: PoolChange) -> None:
    if change.kind is ChangeKind.COMPLETENESS:
        complete = is_complete(change.sources)
        why = {source.name: source.reason for source in change.sources if source.reason}
        log.info("The list is complete" if complete else "The list is not complete", sources=why)
    elif change.record is not None and _levels.isEnabledFor(logging.DEBUG):
        # Asked first: ten thousand leases may end at once, and putting a line together that nobody reads takes 10 us.
        removal = change.removal
        details = {"cause": removal.cause, "reason": removal.reason} if removal else {}
        log.debug("The list changed", kind=change.kind, pool=str(change.record.key), **details)


def serve(settings: ServeSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises `CannotListen` where the address is not to be had; `UsageError` and `StoreConfigError` before it is tried.
    """
    spare_files = SPARE_FILES + (HEALTH_CONNECTIONS if settings.listen.health_listen is not None else 0)
    wanted_files = settings.limits.connections + spare_files
    granted_files = raise_file_limit(wanted_files)
    if granted_files < wanted_files:
        log.warning(
            "This process may open fewer files than --limit-connections needs; it takes fewer connections",
            needed=wanted_files,
            allowed=granted_files,
        )
    # Files are needed for more than connections: whoever could take the last one would keep credentials from being
    # read again.
    connections = max(1, min(settings.limits.connections, granted_files - spare_files))
    metrics = Metrics()
    clock = SystemClock()
    http_limits = msgspec.structs.replace(settings.limits.http, connections=connections)
    listener = Listener(settings.listen, http_limits, clock)
    instance = build_instance(settings, clock, metrics, new_boot_id())
    listener.register_metrics(metrics.registry)
    listener.bind()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, instance, metrics, listener))


def raise_file_limit(wanted: int) -> int:
    """Let this process have ``wanted`` open files, as far as it may without privileges. Returns how many it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


async def _serve(settings: ServeSettings, instance: Instance, metrics: Metrics, listener: Listener) -> None:
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
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listener.mount(apps.main, apps.health, instance.info.boot_id, service_headers(instance))
    tasks: tuple[Callable[[], Awaitable[None]], ...] = (
        *instance.tasks,
        *listener.tasks,
        ProcessMetrics(metrics.registry).run,
        _gc_freeze_loop,
    )
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_supervised(task)) for task in tasks]
        await listener.start()
        await stop.wait()
        await _stop(instance, listener, settings.shutdown_delay_s)
        for each_task in running:
            each_task.cancel()
    log.info("Stopped")


async def _supervised(task: Callable[[], Awaitable[None]]) -> None:
    """Run one background task. If it dies the group ends, and with it the process: half a service is none."""
    try:
        await task()
    except asyncio.CancelledError:
        raise
    except BaseException:
        log.exception("A background task died; this instance ends", task=getattr(task, "__qualname__", str(task)))
        raise


async def _gc_freeze_loop() -> None:
    """Take what lives on out of the garbage collector's sight, every second.

    A full collection stops everything: for 40 ms with 1,300 watchers that came since the last, as each is 59 objects.
    Pools, connections and watchers are freed by their reference counts alone (no cycle was found after thousands of
    each had come and gone), so nothing is lost by freezing them. Young cycles, such as an exception that its own
    traceback holds, are collected before.
    """
    gc.collect()
    while True:
        gc.freeze()
        await asyncio.sleep(FREEZE_EVERY_S)
        gc.collect(1)


async def _stop(instance: Instance, listener: Listener, delay_s: float) -> None:
    log.info("Stopping", delay_s=delay_s)
    instance.stop()
    listener.drain()
    await asyncio.sleep(delay_s)
    instance.close_streams()
    with contextlib.suppress(asyncio.CancelledError):
        await listener.stop(STOP_GRACE_S)
