"""Drives one pool: probes its server, gives the results to the heartbeat's rules, and makes the calls they ask for."""

import asyncio
from collections.abc import Callable

import structlog

from poolmuster.ports.clock import Clock
from poolmuster.relay.discovery import Discovery, document_of
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
from poolmuster.relay.probe import MODELS_LIMIT, Finding, HealthState, Healthy, ProbeAccess, Prober, Unhealthy
from poolmuster.relay.settings import OnExit, PoolSettings, ProbeSettings
from poolmuster.relay.status import DiscoveryStatus, PoolCounts, RelayPoolStatus, ServerState, ServerStatus
from poolmuster.relay.watched_files import PoolFiles

PROBE_JITTER = 0.1

_FAILURES = {HeartbeatFailed: "failed", HeartbeatRefused: "refused", Superseded: "superseded"}


class Agent:
    """One pool of a relay. `run` it until `stop` has returned.

    ``urls`` are the discovery URLs that ``discovery`` calls by number, for people to see. ``rng`` draws from [0, 1).
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
        rng: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.counts = PoolCounts()
        self._urls = urls
        self._discovery = discovery
        self._prober = prober
        self._probing = probing
        self._clock = clock
        self._rng = rng
        self._heartbeat = Heartbeat(len(urls), new_id=new_id, rng=rng)
        self._files = PoolFiles(settings)
        self._health = HealthState(probing.unhealthy_after)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._last_probe_at_ms: int | None = None
        self._last_good_at_ms: int | None = None
        self._phase = Phase.WAITING
        self._since_at_ms = clock.wall_ms()
        self._logged_problems: dict[int, str] = {}
        self._logged_conflict = False
        self._log = structlog.get_logger(__name__).bind(pool=str(settings.key))

    def adopt(self, settings: PoolSettings) -> None:
        """Go on with other settings of the same pool.

        Its registration stays until the next good probe, or until as many have failed as deregister any pool.
        """
        if not settings.same_server(self.settings):
            current = self._health.current
            self._health = HealthState(self._probing.unhealthy_after, current if isinstance(current, Healthy) else None)
        self.settings = settings
        self._files.adopt(settings)

    async def run(self, first_after_ms: float = 0) -> None:
        """Probe and register until `stop` is called. ``first_after_ms`` delays the first probe."""
        probes = asyncio.create_task(self._probe_loop(first_after_ms))
        beats = asyncio.create_task(self._heartbeat_loop())
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
        """Begin to stop: `run` returns when the heartbeat in flight has ended and the pool is deregistered."""
        if on_exit is OnExit.LEAVE:
            self._heartbeat.forget()
        else:
            self._heartbeat.leave(self._clock.monotonic_ms())
        self._stopping.set()
        self._wake.set()

    async def _probe_loop(self, first_after_ms: float) -> None:
        await self._clock.sleep_ms(first_after_ms)
        while True:
            started_ms = self._clock.monotonic_ms()
            settings = self.settings
            if self._files.refresh():
                for problem in self._files.problems:
                    self._log.warning("file not reloaded, the last good content stays in use", problem=problem)
            access = ProbeAccess(settings.frontend_url, settings.health_path, self._files.token, self._files.tls)
            finding = await self._prober.probe(access, self._probing.timeout_s)
            if self._stopping.is_set():  # the probe ended in the turn of the event loop that began the stop
                return
            if settings is self.settings:  # else it was of another server, or with files not yet read
                self._record(finding)
            pause_ms = self._probing.interval_s * 1000 * (1 - PROBE_JITTER + 2 * PROBE_JITTER * self._rng())
            await self._clock.sleep_ms(max(0, pause_ms - (self._clock.monotonic_ms() - started_ms)))

    def _record(self, finding: Finding) -> None:
        before = self._health.current
        self._health.record(finding)
        self._last_probe_at_ms = self._clock.wall_ms()
        self.counts.probes["good" if isinstance(finding, Healthy) else finding.reason.value] += 1
        current = self._health.current
        now_ms = self._clock.monotonic_ms()
        if isinstance(finding, Healthy):
            self._heartbeat.set_document(now_ms, document_of(self.settings, self._files.labels, finding.models))
        elif isinstance(current, Unhealthy):
            self._heartbeat.withdraw(now_ms, DeregisterRequest(current.reason, current.detail))
        if before != current:
            self._log_server(current)
        self._wake.set()

    async def _heartbeat_loop(self) -> None:
        while True:
            step = self._heartbeat.next(self._clock.monotonic_ms())
            self._update_phase()
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
                    self.counts.deregistrations[step.request.reason.value] += 1
            now_ms = self._clock.monotonic_ms()
            self._heartbeat.ended(now_ms, outcome)
            self._count(outcome)
            if isinstance(outcome, HeartbeatAccepted):
                self._log_registered(outcome, listed_until_ms, now_ms)
            self._log_problem(step.url, outcome)

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

    def _count(self, outcome: Outcome) -> None:
        if isinstance(outcome, HeartbeatAccepted):
            self.counts.heartbeats["registered" if outcome.created else "renewed"] += 1
            self._last_good_at_ms = self._clock.wall_ms()
        elif not isinstance(outcome, HeartbeatGone):
            self.counts.heartbeats[_FAILURES[type(outcome)]] += 1

    def _update_phase(self) -> None:
        phase = self._heartbeat.phase(self._clock.monotonic_ms())
        if phase is not self._phase:
            self._phase, self._since_at_ms = phase, self._clock.wall_ms()

    def _log_server(self, current: Finding | None) -> None:
        if isinstance(current, Healthy):
            self._log.info("server healthy", models=[model.id for model in current.models])
            if current.left_out:
                self._log.warning("models over the limit not registered", limit=MODELS_LIMIT, left_out=current.left_out)
        elif current is not None:
            self._log.warning("server unhealthy", reason=current.reason.value, detail=current.detail)

    def _log_registered(self, outcome: HeartbeatAccepted, listed_until_ms: int | None, now_ms: int) -> None:
        if outcome.created and listed_until_ms is None:
            self._log.info("pool registered", url=self._urls[self._heartbeat.url])
        elif outcome.created:
            self.counts.leases_lost += 1
            in_time = listed_until_ms is not None and now_ms < listed_until_ms
            why = "the service dropped it within its lease" if in_time else "its lease ended before this heartbeat"
            self._log.warning("pool registered again after it had left the list", why=why)
        if outcome.conflict and not self._logged_conflict:
            self._log.warning("another relay registers this pool", relay_id=self._heartbeat.relay_id)
        self._logged_conflict = outcome.conflict

    def _log_problem(self, url: int, outcome: Outcome) -> None:
        problem = problem_text(outcome)
        if problem is None:
            if self._logged_problems:
                self._log.info("discovery answers again", url=self._urls[url])
            self._logged_problems.clear()
        elif problem != self._logged_problems.get(url):
            self._logged_problems[url] = problem
            if isinstance(outcome, HeartbeatRefused):
                self._log.error("registration refused, retried at every heartbeat", problem=problem)
            else:
                self._log.warning("heartbeat failed, retried soon", problem=problem)

    @property
    def status(self) -> RelayPoolStatus:
        """The pool's present state."""
        self._update_phase()
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
        current, latest = self._health.current, self._health.latest
        failed = latest if isinstance(latest, Unhealthy) else None
        healthy = current if isinstance(current, Healthy) else Healthy(())
        state = ServerState.UNKNOWN
        if current is not None:
            state = ServerState.UP if current is healthy else ServerState.DOWN
        return ServerStatus(
            url=self.settings.frontend_url,
            state=state,
            reason=failed.reason if failed else None,
            detail=failed.detail if failed else None,
            failed_probes=self._health.failures,
            models=tuple(model.id for model in healthy.models),
            models_left_out=healthy.left_out,
            last_probe_at_ms=self._last_probe_at_ms,
        )


def problem_text(outcome: Outcome) -> str | None:
    """The failure in an outcome, for people, or ``None``."""
    match outcome:
        case HeartbeatRefused(status=status, detail=detail):
            return f"{status}: {detail}"
        case HeartbeatFailed(detail=detail) | Superseded(detail=detail):
            return detail
    return None
