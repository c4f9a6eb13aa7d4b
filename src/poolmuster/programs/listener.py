"""What stands between the network and a program: sockets, certificates, the gate. Alike for every program."""

import os
import socket
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from poolmuster.http.auth import AccessPolicy, Authorizer
from poolmuster.http.auth_log import AuthFailureLog
from poolmuster.http.limits import HttpCounters, HttpLimits
from poolmuster.http.problems import Headers
from poolmuster.http.server import HttpServer, bind
from poolmuster.model.address import Address
from poolmuster.ports.clock import Clock
from poolmuster.programs.auth_setup import AuthSetup
from poolmuster.programs.metrics.listener import ListenerCollector
from poolmuster.programs.settings.listen import ANYONE_FLAG, ListenSettings, UsageError
from poolmuster.programs.supervisor import TaskFunction

HEALTH_CONNECTIONS = 256
HEALTH_GRACE_S = 0.1
HEALTH_LIMITS = HttpLimits(connections=HEALTH_CONNECTIONS, idle_s=5.0, head_s=5.0, makes_room=True)

log = structlog.get_logger("poolmuster.front")


class CannotListen(Exception):
    """An address cannot be listened on. The text is one line that names it."""


class Listener:
    """Reads the files that ``settings`` name; `bind` and `start` do the rest.

    Raises `UsageError`, which names the flag that contradicts another, or whose file cannot be used.
    """

    def __init__(self, settings: ListenSettings, limits: HttpLimits, clock: Clock) -> None:
        settings.check()  # whoever made them: no program is open to a network because it was not asked for a check
        self._settings = settings
        self._limits = limits
        self._credentials = AuthSetup(settings, clock)
        self._servers: list[HttpServer] = []
        self.counters = HttpCounters()
        self.refusals = AuthFailureLog(clock)
        self.rules = AccessPolicy(
            authorizer=Authorizer(self._credentials.authenticator),
            auth_log=self.refusals,
            loopback_only=settings.loopback_only,
            health_loopback_only=settings.health_loopback_only,
        )

    def register_metrics(self, registry: CollectorRegistry) -> None:
        """Put the metrics of this into ``registry``."""
        registry.register(ListenerCollector(self.refusals.counts, self.counters, self._credentials))

    def bind(self) -> None:
        """Bind the addresses. Raises `CannotListen`, and `UsageError` if an address that must be loopback is not."""
        settings = self._settings
        try:
            sockets = _bind("--listen", settings.listen)
            self._servers.append(HttpServer(sockets, self._limits, self._credentials.tls, self.counters))
            if settings.health_listen is not None:
                sockets = _bind("--health-listen", settings.health_listen)
                self._servers.append(HttpServer(sockets, HEALTH_LIMITS))
            if settings.loopback_only:
                self._check_loopback()
        except (CannotListen, UsageError):
            for server in self._servers:
                server.release()
            raise

    def _check_loopback(self) -> None:
        """A name may mean anything to the resolver: what was bound is what counts."""
        for address in self._servers[0].addresses:
            if not address.is_loopback:
                raise UsageError(
                    f"--listen {self._settings.listen} turned out to be {address}, which is reachable from other "
                    f"machines, and no credentials are set: pass --auth-tokens FILE, or let anyone in by {ANYONE_FLAG}"
                )

    async def start(
        self, app: ASGIApp, health_app: ASGIApp, instance: str, headers: Callable[[], Headers] = list
    ) -> None:
        """Serve, once the `tasks`, which must run already, have fetched the keys that authentication needs.

        ``instance`` is the id of this run for the log, ``headers`` is as for `HttpServer.start`.
        """
        await self._credentials.wait_keys()
        for server, served in zip(self._servers, (app, health_app), strict=False):
            await server.start(served, headers)
        settings = self._settings
        for server, what in zip(self._servers, ("everything", "health"), strict=False):
            for address in server.addresses:
                log.info("Listening", address=str(address), what=what, instance=instance)
        if settings.allow_anonymous and not settings.listen.is_loopback:
            log.warning("Anyone who can reach this address may do anything here: --allow-anonymous is set")
        if settings.auth_tokens is not None and settings.tls_cert_path is None and not settings.listen.is_loopback:
            log.warning("Tokens cross the network in the clear: --tls-cert-path is not set")

    @property
    def tasks(self) -> tuple[TaskFunction, ...]:
        """What the supervisor runs."""
        return (*(server.run for server in self._servers), self.refusals.run, *self._credentials.tasks)

    def drain(self) -> None:
        """From here on every answer closes its connection."""
        for server in self._servers:
            server.drain()

    async def stop(self, grace_s: float) -> None:
        """Stop listening; see `poolmuster.http.server.HttpServer.stop`. Health is answered until the end."""
        main, *health = self._servers
        await main.stop(grace_s)
        for server in health:
            await server.stop(HEALTH_GRACE_S)


def _bind(flag: str, address: Address) -> list[socket.socket]:
    try:
        return bind(address.host, address.port)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise CannotListen(f"cannot listen on {address} ({flag}): {why}") from error
