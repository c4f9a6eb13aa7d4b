"""Drives one pool: probes its server, tells the heartbeat what to want, and does the steps that come out."""

import asyncio
from collections.abc import Callable

import structlog

from poolmuster.ports.clock import Clock
from poolmuster.relay.discovery import Discovery
from poolmuster.relay.document import document_of
from poolmuster.relay.health import Finding, HealthState, Healthy, Unhealthy
from poolmuster.relay.heartbeat import (
    DeregisterRequest,
    Heartbeat,
    HeartbeatAccepted,
    HeartbeatFailed,
    HeartbeatGone,
    HeartbeatRefused,
    Outcome,
    Phase,
    Register,
    Superseded,
    Wait,
)
from poolmuster.relay.pool_files import PoolFiles
from poolmuster.relay.probe import MODELS_LIMIT, ProbeAccess, Prober
from poolmuster.relay.settings import OnExit, PoolSettings, ProbeSettings
from poolmuster.relay.status import DiscoveryStatus, PoolCounts, RelayPoolStatus, ServerState, ServerStatus

PROBE_JITTER = 0.1

log = structlog.get_logger(__name__)


class Agent:
    """One pool of a relay. `run` it until `stop` has returned.

    ``urls`` are the discovery URLs that ``discovery`` calls by number, for people to see.
    """

    def __init__(
        self,
        settings: PoolSettings,
        *,
        urls: tuple[str, ...],
        discovery: Discovery,
        prober: Prober,
        probing: ProbeSettings,
        clock: Clock,
        new_id: Callable[[], str],
        draw: Callable[[], float],
    ) -> None:
        self.counts = PoolCounts()
        self._urls = urls
        self._discovery = discovery
        self._prober = prober
        self._probing = probing
        self._clock = clock
        self._draw = draw
        self._heartbeat = Heartbeat(len(urls), new_id=new_id, draw=draw)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._last_probe_at_ms: int | None = None
        self._last_good_at_ms: int | None = None
        self._phase = Phase.WAITING
        self._since_at_ms = clock.wall_ms()
        self._said_problems: dict[int, str] = {}
        self._said_conflict = False
        self.settings = settings
        self._files = PoolFiles(settings)
        self._verdict = HealthState(probing.unhealthy_after)

    def adopt(self, settings: PoolSettings) -> None:
        """Go on with other settings of the same pool.

        What is registered stays until the next good probe, or until as many have failed as take any pool off the list.
        """
        if not settings.same_server(self.settings):
            current = self._verdict.current
            presumed = current if isinstance(current, Healthy) else None
            self._verdict = HealthState(self._probing.unhealthy_after, presumed)
        self.settings = settings
        self._files.follow(settings)

    async def run(self, first_after_ms: float = 0) -> None:
        """Probe and register until `stop` is called. ``first_after_ms`` delays the first probe."""
        probes = asyncio.create_task(self._probe_on(first_after_ms))
        beats = asyncio.create_task(self._beat_on())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((probes, beats, stop), return_when=asyncio.FIRST_COMPLETED)
            if probes.done():
                probes.result()
            probes.cancel()
            await beats
        finally:
            for task in (probes, beats, stop):
                task.cancel()
            await asyncio.gather(probes, beats, stop, return_exceptions=True)

    def stop(self, on_exit: OnExit) -> None:
        """Begin to leave: `run` returns when the heartbeat in flight has ended and the pool is deregistered."""
        if on_exit is OnExit.LEAVE:
            self._heartbeat.forget()
        else:
            self._heartbeat.leave(self._clock.monotonic_ms())
        self._stopping.set()
        self._wake.set()

    async def _probe_on(self, first_after_ms: float) -> None:
        await self._clock.sleep_ms(first_after_ms)
        while True:
            started_ms = self._clock.monotonic_ms()
            settings = self.settings
            if self._files.refresh():
                self._say_files()
            access = ProbeAccess(settings.frontend_url, settings.health_path, self._files.token, self._files.tls)
            finding = await self._prober.probe(access, self._probing.timeout_s)
            if self._stopping.is_set():  # it ended in the very turn in which the relay was told to stop
                return
            if settings is self.settings:  # else they changed meanwhile: another server's, or with files not yet read
                self._conclude(finding)
            pause_ms = self._probing.interval_s * 1000 * (1 - PROBE_JITTER + 2 * PROBE_JITTER * self._draw())
            await self._clock.sleep_ms(max(0, pause_ms - (self._clock.monotonic_ms() - started_ms)))

    def _conclude(self, finding: Finding) -> None:
        before = self._verdict.current
        self._verdict.record(finding)
        self._last_probe_at_ms = self._clock.wall_ms()
        self.counts.probes["good" if isinstance(finding, Healthy) else finding.reason.value] += 1
        current = self._verdict.current
        now_ms = self._clock.monotonic_ms()
        if isinstance(finding, Healthy):
            self._heartbeat.set_document(now_ms, document_of(self.settings, self._files.labels, finding.models))
        elif isinstance(current, Unhealthy):
            self._heartbeat.withdraw(now_ms, DeregisterRequest(current.reason, current.detail))
        if before != current:
            self._say_server(current)
        self._wake.set()

    async def _beat_on(self) -> None:
        while True:
            step = self._heartbeat.next(self._clock.monotonic_ms())
            self._note_phase()
            if isinstance(step, Wait):
                if self._stopping.is_set() and step.until_ms is None:
                    return
                await self._sleep_until(step.until_ms)
                continue
            listed_until_ms = self._heartbeat.listed_until_ms
            if isinstance(step, Register):
                outcome = await self._discovery.register(step)
            else:
                outcome = await self._discovery.deregister(self.settings.key, step)
                if isinstance(outcome, HeartbeatGone):
                    self.counts.deregistrations[step.departing.reason.value] += 1
            now_ms = self._clock.monotonic_ms()
            self._heartbeat.ended(now_ms, outcome)
            self._note_outcome(step.url, outcome, listed_until_ms, now_ms)

    async def _sleep_until(self, until_ms: int | None) -> None:
        waits: set[asyncio.Task[object]] = {asyncio.create_task(self._wake.wait())}
        if until_ms is not None:
            waits.add(asyncio.create_task(self._clock.sleep_ms(until_ms - self._clock.monotonic_ms())))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        self._wake.clear()

    def _note_outcome(self, url: int, outcome: Outcome, listed_until_ms: int | None, now_ms: int) -> None:
        name = type(outcome).__name__.lower()
        if isinstance(outcome, HeartbeatAccepted):
            name = "registered" if outcome.created else "renewed"
            self._last_good_at_ms = self._clock.wall_ms()
            self._say_listed(outcome, listed_until_ms, now_ms)
        if not isinstance(outcome, HeartbeatGone):
            self.counts.heartbeats[name] += 1
        self._say_problem(url, outcome)

    def _note_phase(self) -> None:
        phase = self._heartbeat.phase(self._clock.monotonic_ms())
        if phase is not self._phase:
            self._phase, self._since_at_ms = phase, self._clock.wall_ms()

    def _say_files(self) -> None:
        for problem in self._files.problems:
            log.warning(
                "A file is not usable; what it last held stays in use", pool=str(self.settings.key), file=problem
            )

    def _say_server(self, current: Finding | None) -> None:
        key = str(self.settings.key)
        if isinstance(current, Healthy):
            log.info("The server serves", pool=key, models=[model.id for model in current.models])
            if current.left_out:
                log.warning(
                    "The server lists more models than a relay looks at; the rest are not registered",
                    pool=key,
                    limit=MODELS_LIMIT,
                    left_out=current.left_out,
                )
        elif current is not None:
            log.warning("The server is down", pool=key, reason=current.reason.value, detail=current.detail)

    def _say_listed(self, outcome: HeartbeatAccepted, listed_until_ms: int | None, now_ms: int) -> None:
        key = str(self.settings.key)
        if outcome.created and listed_until_ms is None:
            log.info("The pool is registered", pool=key, url=self._urls[self._heartbeat.url])
        elif outcome.created:
            self.counts.leases_lost += 1
            in_time = listed_until_ms is not None and now_ms < listed_until_ms
            log.warning(
                "The pool had left the list and is registered again",
                pool=key,
                why="the service had dropped it within its lease"
                if in_time
                else "its lease ran out before this heartbeat",
            )
        if outcome.conflict != self._said_conflict:
            self._said_conflict = outcome.conflict
            if outcome.conflict:
                log.warning("Another relay registers this pool too", pool=key, relay_id=self._heartbeat.relay_id)

    def _say_problem(self, url: int, outcome: Outcome) -> None:
        key, problem = str(self.settings.key), problem_text(outcome)
        if problem is None:
            if self._said_problems:
                log.info("Discovery answers again", pool=key, url=self._urls[url])
            self._said_problems.clear()
        elif problem != self._said_problems.get(url):
            self._said_problems[url] = problem
            if isinstance(outcome, HeartbeatRefused):
                log.error("Discovery refuses the pool; tried again at every heartbeat", pool=key, problem=problem)
            else:
                log.warning("Discovery did not take a heartbeat; tried again soon", pool=key, problem=problem)

    @property
    def status(self) -> RelayPoolStatus:
        """How the pool fares now."""
        self._note_phase()
        beat, now_ms = self._heartbeat, self._clock.monotonic_ms()
        listed_until_ms = beat.listed_until_ms if beat.listed(now_ms) else None
        return RelayPoolStatus(
            key=str(self.settings.key),
            relay_id=beat.relay_id,
            phase=self._phase,
            since_at_ms=self._since_at_ms,
            advertise_url=self.settings.advertise_url,
            server=self._server_status(),
            discovery=DiscoveryStatus(
                url=self._urls[beat.url],
                listed=listed_until_ms is not None,
                conflict=beat.conflict(now_ms),
                refused=isinstance(beat.problem, HeartbeatRefused),
                problem=None if beat.problem is None else problem_text(beat.problem),
                last_good_at_ms=self._last_good_at_ms,
                lease_ends_in_ms=None if listed_until_ms is None else listed_until_ms - now_ms,
                heartbeat_interval_ms=beat.terms.spacing_ms,
            ),
            file_problems=self._files.problems + self._discovery.problems,
        )

    def _server_status(self) -> ServerStatus:
        current, latest = self._verdict.current, self._verdict.latest
        failed = latest if isinstance(latest, Unhealthy) else None
        state = ServerState.UNKNOWN
        if current is not None:
            state = ServerState.UP if isinstance(current, Healthy) else ServerState.DOWN
        return ServerStatus(
            url=self.settings.frontend_url,
            state=state,
            reason=failed.reason if failed else None,
            detail=failed.detail if failed else None,
            failed_probes=self._verdict.failures,
            models=tuple(model.id for model in current.models) if isinstance(current, Healthy) else (),
            models_left_out=current.left_out if isinstance(current, Healthy) else 0,
            last_probe_at_ms=self._last_probe_at_ms,
        )


def problem_text(outcome: Outcome) -> str | None:
    """What went wrong, for people, or ``None``."""
    match outcome:
        case HeartbeatRefused(status=status, detail=detail):
            return f"{status}: {detail}"
        case HeartbeatFailed(detail=detail) | Superseded(detail=detail):
            return detail
    return None
