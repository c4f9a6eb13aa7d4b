"""All pools of one relay: an agent for each, and with ``--pools`` one for each pool in the file."""

import asyncio
import functools
from collections.abc import Callable

import structlog

from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey
from poolmuster.platform.files import WatchedFile
from poolmuster.ports.clock import Clock
from poolmuster.relay.agent import Agent
from poolmuster.relay.pools_file import PoolSet, parse_pools
from poolmuster.relay.settings import OnExit, PoolSettings, RelaySettings
from poolmuster.relay.status import RelayPoolStatus
from poolmuster.relay.watched_files import PoolFiles

FILE_CHECK_MS = 2_000
SPREAD_FROM = 16
"""From so many new pools on their first probes are spread over one probe interval."""

log = structlog.get_logger(__name__)

AgentFactory = Callable[[PoolSettings], Agent]


class AgentSupervisor:
    """The agents of a relay. `run` ends after `stop`, when all have ended, or raises the error of an agent."""

    def __init__(self, settings: RelaySettings, *, agent: AgentFactory, clock: Clock, rng: Callable[[], float]) -> None:
        self._settings = settings
        self._new_agent = agent
        self._clock = clock
        self._rng = rng
        parse = functools.partial(parse_pools, defaults=settings.defaults, discovery=settings.discovery)
        first = PoolSet() if settings.pool is None else PoolSet((settings.pool,))
        self._file = WatchedFile(settings.pools_file, parse, first)
        self._warnings: tuple[str, ...] = ()
        self._agents: dict[PoolKey, Agent] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def check(self) -> None:
        """Raise `InvalidInput` for a file that cannot be used. Later its last good content stays in use instead."""
        self._file.refresh()
        problems = [self._file.problem] if self._file.problem is not None else []
        for pool in self._file.value.settings:
            files = PoolFiles(pool)
            files.refresh()
            problems += files.problems
        if problems:
            raise InvalidInput(problems[0])
        self._log_warnings()

    async def run(self) -> None:
        """Keep an agent for each pool until `stop`."""
        self._reconcile(self._file.value.settings)
        watching = asyncio.create_task(self._watch_file())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while self._tasks or not self._stopping.is_set():
                waits = {*self._tasks, watching, *(() if self._stopping.is_set() else (stopping,))}
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                self._tasks -= done
                for task in done - {stopping}:
                    task.result()
        finally:
            rest = [watching, stopping, *self._tasks]
            for each in rest:
                each.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    def stop(self) -> None:
        """Begin to stop, with every pool."""
        self._stopping.set()
        for agent in self._agents.values():
            agent.stop(self._settings.on_exit)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def agents(self) -> tuple[Agent, ...]:
        """One for each pool, in the order of their keys."""
        return tuple(self._agents[key] for key in sorted(self._agents))

    @property
    def statuses(self) -> tuple[RelayPoolStatus, ...]:
        return tuple(agent.status for agent in self.agents)

    @property
    def file_problem(self) -> str | None:
        """What is wrong with the pools file now; its last good content is in use."""
        return self._file.problem

    async def _watch_file(self) -> None:
        while True:
            await self._clock.sleep_ms(FILE_CHECK_MS)
            if not self._file.refresh():
                continue
            if self._file.problem is not None:
                log.error("pools file not reloaded, the last good content stays in use", problem=self._file.problem)
            else:
                log.info("pools file reloaded", pools=len(self._file.value.settings))
                self._log_warnings()
                self._reconcile(self._file.value.settings)

    def _log_warnings(self) -> None:
        before, self._warnings = self._warnings, self._file.value.warnings
        for warning in self._warnings:
            if warning not in before:
                log.warning("pools file corrected", warning=warning)

    def _reconcile(self, pools: tuple[PoolSettings, ...]) -> None:
        if self._stopping.is_set():  # during the start: an agent that begins now would never be stopped
            return
        wanted = {pool.key: pool for pool in pools}
        for key in [key for key in self._agents if key not in wanted]:
            self._agents.pop(key).stop(OnExit.DEREGISTER)
        new = [pool for pool in pools if pool.key not in self._agents]
        spread_ms = self._settings.probe.interval_s * 1000 if len(new) >= SPREAD_FROM else 0.0
        for pool in pools:
            if pool.key not in self._agents:
                agent = self._agents[pool.key] = self._new_agent(pool)
                self._tasks.add(asyncio.create_task(agent.run(spread_ms * self._rng())))
            elif self._agents[pool.key].settings != pool:
                self._agents[pool.key].adopt(pool)
