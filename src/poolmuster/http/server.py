"""A server: sockets in, connections swept, drained and closed."""

import asyncio
import socket
from collections.abc import Callable
from email.utils import formatdate

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from poolmuster.http.limits import HttpCounters, HttpLimits
from poolmuster.http.problems import Headers
from poolmuster.http.protocol import BoundedProtocol, protocol_factory
from poolmuster.http.tls import TlsFiles
from poolmuster.http.tls_listener import TlsListener
from poolmuster.model.address import Address

SWEEP_S = 0.5
BACKLOG = 2048


class HttpServer:
    """Serves an application on ``sockets`` within ``limits``. The constructor starts nothing.

    With ``tls`` every connection is encrypted, each with what ``tls`` gives when it comes in. What the limits did is
    counted in ``counters``.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        limits: HttpLimits,
        tls: TlsFiles | None = None,
        counters: HttpCounters | None = None,
    ) -> None:
        self.counters = counters or HttpCounters()
        self._sockets = sockets
        self._limits = limits
        self._tls = tls
        self._tls_listener: TlsListener | None = None
        self._state = ServerState()
        self._draining = False
        self._servers: list[asyncio.Server] = []

    @property
    def addresses(self) -> list[Address]:
        """Where it listens, with the ports that it really got."""
        return [Address(*each.getsockname()[:2]) for each in self._sockets]

    def release(self) -> None:
        """Give the addresses up, of a server that was never started."""
        for each in self._sockets:
            each.close()

    async def start(self, app: ASGIApp, headers: Callable[[], Headers] = list) -> None:
        """Listen, and answer with ``app``. Connections are accepted from here on.

        ``headers`` gives what an answer bears that comes before ``app`` is asked, such as that the head is too large.
        """
        config = Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=max(1, round(self._limits.idle_s)),
        )
        config.load()
        self._renew_default_headers()
        loop = asyncio.get_running_loop()
        factory = protocol_factory(config, self._state, self._limits, self.counters, headers)
        if self._tls is not None:
            connections = self._state.connections
            self._tls_listener = TlsListener(self._tls, self._limits, self.counters, connections, factory)
            self._tls_listener.listen(self._sockets)
            return
        for each in self._sockets:
            self._servers.append(await loop.create_server(factory, sock=each, backlog=BACKLOG))

    async def run(self) -> None:
        """Hold connections to their limits until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            self._renew_default_headers()
            if self._tls_listener is not None:
                self._tls_listener.log_suppressed()
            now_s = loop.time()
            for number, connection in enumerate(list(self._state.connections)):
                assert isinstance(connection, BoundedProtocol), "the factory makes no others"
                connection.sweep(now_s)
                if number % 1000 == 999:
                    await asyncio.sleep(0)

    def drain(self) -> None:
        """From here on every answer closes its connection, so that clients move to another instance."""
        self._draining = True
        self._renew_default_headers()

    async def stop(self, grace_s: float) -> None:
        """Stop listening, close idle connections, give the others ``grace_s`` to be answered, then drop them."""
        self.drain()
        for server in self._servers:
            server.close()
        if self._tls_listener is not None:
            await self._tls_listener.close()
        connections = self._state.connections
        for connection in list(connections):
            connection.shutdown()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + grace_s
        while connections and loop.time() < deadline_s:
            await asyncio.sleep(0.02)
        for connection in list(connections):
            assert isinstance(connection, BoundedProtocol), "as above"
            connection.drop()
        while self._state.tasks and loop.time() < deadline_s + 0.5:
            await asyncio.sleep(0.02)

    def _renew_default_headers(self) -> None:
        headers = [(b"date", formatdate(usegmt=True).encode())]
        if self._draining:
            headers.append((b"connection", b"close"))
        self._state.default_headers = headers


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on ``host`` and ``port``; an empty host means every address. Raises `OSError`.

    Port 0 takes a free one. Where a name has several addresses, each is bound.
    """
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    if not host and socket.has_dualstack_ipv6():
        infos = [info for info in infos if info[0] == socket.AF_INET6] or infos
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in infos:
            listener = socket.socket(family, kind, protocol)
            bound.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            if family == socket.AF_INET6:
                # [::] serves IPv4 clients too, as a container's one address.
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address[0] == "::" else 1)
            listener.bind(address)
            # Two may be bound to one address until one of them listens: it is here that a port in use shows.
            listener.listen(BACKLOG)
    except OSError:
        for listener in bound:
            listener.close()
        raise
    return bound
