"""The program ``poolmuster relay``: parts put together, tasks supervised, an orderly end."""

import asyncio
import contextlib
import os
import random
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import aiohttp
import structlog
from prometheus_client import CollectorRegistry

from poolmuster.client.settings import ClientSettings
from poolmuster.client.transport import USER_AGENT, open_session
from poolmuster.http.limits import HttpLimits
from poolmuster.platform.clock import SystemClock
from poolmuster.ports.clock import Clock
from poolmuster.programs.listener import Listener
from poolmuster.programs.settings.listen import ListenSettings
from poolmuster.relay.agent import Agent
from poolmuster.relay.app import relay_apps
from poolmuster.relay.discovery_client import DiscoveryClient
from poolmuster.relay.probe import Prober
from poolmuster.relay.settings import PoolSettings, RelaySettings
from poolmuster.relay.supervisor import AgentSupervisor

STOP_LIMIT_MS = 4_500
"""From SIGTERM to the end of the last task. With `LOOKUP_GRACE_S` the process is out within five seconds."""

LEAVE_LIMIT_MS = 4_200
"""What of it the heartbeat in flight and the deregistration get together."""

SERVER_GRACE_S = 0.2
LOOKUP_GRACE_S = 0.2
LIMITS = HttpLimits(connections=256, makes_room=True)
LOOKUP_THREADS = 32
LOOKUP_NAME = "poolmuster-lookup"

log = structlog.get_logger("poolmuster.relay")


def relay(settings: RelaySettings, listener: ListenSettings, client: ClientSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises `InvalidInput` and `UsageError` for bad files, `CannotListen`."""
    lookups = ThreadPoolExecutor(LOOKUP_THREADS, LOOKUP_NAME)
    runner = asyncio.Runner()
    try:
        runner.get_loop().set_default_executor(lookups)
        runner.run(_relay(settings, listener, client))
    finally:
        lookups.shutdown(wait=False, cancel_futures=True)
        _leave_hung_lookups()
        runner.close()


def _leave_hung_lookups() -> None:
    """End the process here if a name lookup hangs: nothing else is left to do, and Python would wait for it."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(LOOKUP_NAME)]
    for thread in threads:
        thread.join(LOOKUP_GRACE_S / len(threads))
    if any(thread.is_alive() for thread in threads) and sys.exc_info()[0] is None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def new_relay_id() -> str:
    """An id that no other relay bears, well within what a service takes."""
    return secrets.token_hex(8)


def open_probe_session() -> aiohttp.ClientSession:
    """The session for model servers: no proxies, no cookies, nothing decompressed."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": USER_AGENT},
        timeout=aiohttp.ClientTimeout(total=None),  # each probe as a whole has its own
        auto_decompress=False,
        trust_env=False,
    )


async def _relay(settings: RelaySettings, front_settings: ListenSettings, client: ClientSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        clock, boot_id = SystemClock(), secrets.token_hex(6)
        services = DiscoveryClient(await stack.enter_async_context(open_session(client, clock)), client)
        probes = await stack.enter_async_context(open_probe_session())
        prober = Prober(probes)

        def agent(pool: PoolSettings) -> Agent:
            return Agent(
                pool,
                urls=settings.discovery,
                discovery=services,
                prober=prober,
                probing=settings.probe,
                clock=clock,
                new_id=new_relay_id,
                draw=random.random,
            )

        supervisor = AgentSupervisor(settings, agent=agent, clock=clock, draw=random.random)
        supervisor.check()
        listener = Listener(front_settings, LIMITS, clock)
        listener.bind()
        registry = CollectorRegistry()
        listener.register_metrics(registry)
        main, health = relay_apps(supervisor, boot_id, registry, listener.rules)
        listener.mount(main, health, boot_id)
        await work(supervisor, listener, stop, clock)
    log.info("Stopped")


class RelayServer(Protocol):
    """What serves while the relay works."""

    @property
    def tasks(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]: ...

    async def start(self) -> None: ...

    async def stop(self, grace_s: float) -> None: ...


async def work(supervisor: AgentSupervisor, listener: RelayServer, stop: asyncio.Event, clock: Clock) -> None:
    """Run both until ``stop``; then leave, and return within `STOP_LIMIT_MS`, whoever does not answer."""
    async with asyncio.TaskGroup() as group:
        serving = [group.create_task(task()) for task in listener.tasks]
        working = group.create_task(supervisor.run())
        await listener.start()
        await stop.wait()
        log.info("Stopping")
        ends_ms = clock.monotonic_ms() + STOP_LIMIT_MS
        supervisor.stop()
        if not await _ends_within(LEAVE_LIMIT_MS, working, clock):
            log.warning("Not every pool could be deregistered in time; what is registered ends with its lease")
        closing = group.create_task(listener.stop(SERVER_GRACE_S))
        await _ends_within(ends_ms - clock.monotonic_ms(), closing, clock)
        for task in serving:
            task.cancel()


async def _ends_within(limit_ms: float, task: asyncio.Task[None], clock: Clock) -> bool:
    """Wait for ``task``. Returns whether it ended by itself; else it is cancelled after ``limit_ms``."""
    timer = asyncio.create_task(clock.sleep_ms(limit_ms))
    try:
        await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return not task.cancel()
