"""A server, discovery and a clock under the tests of the relay's agents."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from poolmuster.model.change import DeregistrationReason
from poolmuster.model.key import PoolKey
from poolmuster.relay.agent import Agent
from poolmuster.relay.heartbeat import (
    Deregister,
    HeartbeatAccepted,
    HeartbeatGone,
    Outcome,
    Register,
    Terms,
)
from poolmuster.relay.probe import Finding, Healthy, ProbeAccess, Prober, ServedModel, Unhealthy
from poolmuster.relay.settings import PoolSettings, ProbeSettings
from tests.support.clock import ManualClock

KEY = PoolKey("c", "ns", "n")
POOL = PoolSettings(key=KEY, frontend_url="http://h:1", advertise_url="http://h:1")
GOOD = Healthy((ServedModel("m"),))
DOWN = Unhealthy(DeregistrationReason.FRONTEND_UNHEALTHY, "/health answered 500")
EMPTY = Unhealthy(DeregistrationReason.NO_MODELS, "/v1/models lists none")
URLS = ("http://a", "http://b")


class FakeProber(Prober):
    """Finds what the test says, by the root that is asked."""

    def __init__(self, world: "World") -> None:
        self._world = world

    async def probe(self, access: ProbeAccess, timeout_s: float) -> Finding:
        self._world.probes += 1
        await self._world.answering.wait()
        return self._world.findings.get(access.root, self._world.finding)


class World:
    """A server, discovery, and the clock of both."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.finding: Finding = GOOD
        self.findings: dict[str, Finding] = {}
        self.outcome: Outcome = HeartbeatAccepted(Terms())
        self.problems: tuple[str, ...] = ()
        self.latency_ms = 0
        self.probes = 0
        self.answering = asyncio.Event()
        """Clear it, and probes wait until it is set again."""
        self.answering.set()
        self.calls: list[tuple[int, Register | Deregister, PoolKey | None]] = []
        self.ids = itertools.count()

    async def register(self, step: Register) -> Outcome:
        self.calls.append((self.clock.monotonic_ms(), step, None))
        if self.latency_ms:
            await self.clock.sleep_ms(self.latency_ms)
        return self.outcome

    async def deregister(self, key: PoolKey, step: Deregister) -> Outcome:
        self.calls.append((self.clock.monotonic_ms(), step, key))
        return HeartbeatGone() if isinstance(self.outcome, HeartbeatAccepted) else self.outcome

    def agent(self, settings: PoolSettings = POOL) -> Agent:
        return Agent(
            settings,
            urls=URLS,
            discovery=self,
            prober=FakeProber(self),
            probing=ProbeSettings(),
            clock=self.clock,
            new_id=lambda: f"id-{next(self.ids)}",
            rng=lambda: 0.5,
        )

    @property
    def registers(self) -> list[Register]:
        return [step for _, step, _ in self.calls if isinstance(step, Register)]

    @property
    def deregisters(self) -> list[Deregister]:
        return [step for _, step, _ in self.calls if isinstance(step, Deregister)]


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(agent.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def document(step: Register) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(step.facts)
    return found
