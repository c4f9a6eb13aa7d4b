"""The program ``poolmuster relay``: builds the agents and what they need, and runs them until a signal."""

import functools
import random
import secrets

import aiohttp
from prometheus_client import CollectorRegistry

from poolmuster.client.settings import ClientSettings
from poolmuster.client.transport import USER_AGENT, open_session
from poolmuster.http.limits import HttpLimits
from poolmuster.platform.lease_clock import SystemClock
from poolmuster.ports.clock import Clock
from poolmuster.programs.listener import Listener
from poolmuster.programs.settings.listen import ListenSettings
from poolmuster.programs.supervisor import StopStep, Supervisor, TaskFunction
from poolmuster.relay.agent import Agent
from poolmuster.relay.app import relay_apps
from poolmuster.relay.discovery import DiscoveryClient
from poolmuster.relay.probe import Prober
from poolmuster.relay.settings import RelaySettings
from poolmuster.relay.supervisor import AgentSupervisor

STOP_LIMIT_MS = 4_500
"""From SIGTERM to the end of the last stop step; with `supervisor.WORKER_GRACE_S` the process exits within 5 s."""

LEAVE_LIMIT_MS = 4_200
"""From SIGTERM to the end of the heartbeats in flight and of the deregistrations."""

SERVER_GRACE_S = 0.2
LIMITS = HttpLimits(connections=256, makes_room=True)

LOOKUP_THREADS = 32
"""Name lookups at once: one that hangs occupies a thread."""


def relay(settings: RelaySettings, listen: ListenSettings, client: ClientSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises `InvalidInput` and `UsageError` for bad files, `CannotListen`."""
    clock = SystemClock()
    supervisor = Supervisor("relay", clock)
    supervisor.run(functools.partial(_relay, supervisor, settings, listen, client, clock), workers=LOOKUP_THREADS)


async def _relay(
    supervisor: Supervisor, settings: RelaySettings, listen: ListenSettings, client: ClientSettings, clock: Clock
) -> None:
    async with open_session(client, clock) as session, open_probe_session() as probes:
        new_agent = functools.partial(
            Agent,
            urls=settings.discovery,
            discovery=DiscoveryClient(session, client),
            prober=Prober(probes),
            probing=settings.probe,
            clock=clock,
            new_id=new_relay_id,
            rng=random.random,
        )
        agents = AgentSupervisor(settings, agent=new_agent, clock=clock, rng=random.random)
        agents.check()
        listener = Listener(listen, LIMITS, clock)
        listener.bind()
        registry = CollectorRegistry()
        listener.register_metrics(registry)
        main, health = relay_apps(agents, supervisor.boot_id, registry, listener.rules)
        await supervisor.supervise(
            [*listener.tasks, agents.run],
            start=functools.partial(listener.start, main, health, supervisor.boot_id),
            stop_steps=stop_steps(supervisor, agents, functools.partial(listener.stop, SERVER_GRACE_S)),
        )


def stop_steps(
    supervisor: Supervisor, agents: AgentSupervisor, stop_listener: TaskFunction
) -> tuple[StopStep, StopStep]:
    """Every pool leaves, then the listener stops. What does not answer is cut, within `STOP_LIMIT_MS` in all."""

    async def leave() -> None:
        agents.stop()
        await supervisor.join(agents.run)

    overrun = "Not every pool could be deregistered in time; what is registered ends with its lease"
    return StopStep(leave, LEAVE_LIMIT_MS, overrun), StopStep(stop_listener, STOP_LIMIT_MS)


def new_relay_id() -> str:
    """An id that no other relay has, well within the length that a service accepts."""
    return secrets.token_hex(8)


def open_probe_session() -> aiohttp.ClientSession:
    """The session for model servers: no proxies, no cookies, no decompression."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": USER_AGENT},
        timeout=aiohttp.ClientTimeout(total=None),  # each probe as a whole has its own
        auto_decompress=False,
        trust_env=False,
    )
