"""All pools of one relay: an agent each, and with ``--pools`` as many as the file says from time to time."""

import asyncio
import functools
from collections.abc import Callable

import structlog

from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey
from poolmuster.platform.files import WatchedFile
from poolmuster.ports.clock import Clock
from poolmuster.relay.agent import Agent
from poolmuster.relay.pool_files import PoolFiles
from poolmuster.relay.pools_file import PoolSet, parse_pools
from poolmuster.relay.settings import OnExit, PoolSettings, RelaySettings
from poolmuster.relay.status import RelayPoolStatus

FILE_CHECK_MS = 2_000
SPREAD_FROM = 16
"""From so many new pools on their first probes are spread over one probe interval."""

log = structlog.get_logger(__name__)

AgentFactory = Callable[[PoolSettings], Agent]


class AgentSupervisor:
    """The agents of a relay. `run` ends when `stop` was called and all have left, or raises what an agent died of."""

    def __init__(
        self, settings: RelaySettings, *, agent: AgentFactory, clock: Clock, draw: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._new_agent = agent
        self._clock = clock
        self._draw = draw
        parse = functools.partial(parse_pools, defaults=settings.defaults, discovery=settings.discovery)
        first = PoolSet() if settings.pool is None else PoolSet((settings.pool,))
        self._file = WatchedFile(settings.pools_file, parse, first)
        self._remarks: tuple[str, ...] = ()
        self._agents: dict[PoolKey, Agent] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def check(self) -> None:
        """Raise `InvalidInput` for a file that cannot be read: at the start that is a mistake, later only a pity."""
        self._file.refresh()
        problems = [self._file.problem] if self._file.problem is not None else []
        for pool in self._file.value.settings:
            files = PoolFiles(pool)
            files.refresh()
            problems += files.problems
        if problems:
            raise InvalidInput(problems[0])
        self._say_remarks()

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
        """Begin to leave, with every pool."""
        self._stopping.set()
        for agent in self._agents.values():
            agent.stop(self._settings.on_exit)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def agents(self) -> tuple[Agent, ...]:
        """One for each pool there should be now, in the order of their keys."""
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
                log.error("The pools file is not usable; what it last held stays in use", problem=self._file.problem)
            else:
                log.info("The pools file was read again", pools=len(self._file.value.settings))
                self._say_remarks()
                self._reconcile(self._file.value.settings)

    def _say_remarks(self) -> None:
        before, self._remarks = self._remarks, self._file.value.remarks
        for remark in self._remarks:
            if remark not in before:
                log.warning("The pools file is not taken as it is written", remark=remark)

    def _reconcile(self, pools: tuple[PoolSettings, ...]) -> None:
        if self._stopping.is_set():  # told to while starting: nobody would stop an agent that begins now
            return
        wanted = {pool.key: pool for pool in pools}
        for key in [key for key in self._agents if key not in wanted]:
            self._agents.pop(key).stop(OnExit.DEREGISTER)
        new = [pool for pool in pools if pool.key not in self._agents]
        spread_ms = self._settings.probe.interval_s * 1000 if len(new) >= SPREAD_FROM else 0.0
        for pool in pools:
            if pool.key not in self._agents:
                agent = self._agents[pool.key] = self._new_agent(pool)
                self._tasks.add(asyncio.create_task(agent.run(spread_ms * self._draw())))
            elif self._agents[pool.key].settings != pool:
                self._agents[pool.key].adopt(pool)
