"""Accepts connections and begins TLS on each, with the certificate of that moment.

A connection has no TLS state, which takes about 170 KB, before its first byte: a port probe costs one socket and is no
failure. Then `HandshakeQueue` decides when its handshake begins. asyncio's own TLS servers have one certificate for
their lifetime, and do not report why a handshake failed.
"""

import asyncio
import errno
import re
import socket
from collections.abc import Callable, Sized

import structlog

from poolmuster.http.auth_log import shown_address
from poolmuster.http.handshake_queue import HandshakeQueue
from poolmuster.http.limits import HandshakeFailure, HttpCounters, HttpLimits
from poolmuster.http.log_throttle import LogThrottle
from poolmuster.http.problems import HTTPS_WANTED
from poolmuster.http.protocol import BoundedProtocol
from poolmuster.http.tls import ServerTls, TlsConnection, TlsFiles
from poolmuster.http.tls_errors import GONE, NO_TLS, PLAIN_HTTP, Failure, failure_of

SHUTDOWN_S = 24 * 3600.0
"""Replaces asyncio's limit on the end of a connection, which would cut off an answer that a client reads slowly.
`BoundedProtocol.sweep` bounds the time without progress instead."""

BUFFERED_BYTES = 64 * 1024
"""As much as of a plain connection. asyncio would take half a megabyte, and detect late that a client reads nothing."""

HANDSHAKES_AT_ONCE = 256

HANDSHAKE_S = 5.0
"""The time limit of a handshake, where the limit on a head is longer."""

ACCEPTS_AT_ONCE = 64
"""Connections accepted in one turn of the event loop."""

ACCEPT_RETRY_S = 1.0
"""The pause after an `accept` that failed for lack of file descriptors or memory."""

OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

HANDSHAKE_RECORD = b"\x16"
"""The first byte of a TLS connection (RFC 8446, 5.1)."""

HTTP_REQUEST = re.compile(rb"[A-Z]+ ")

log = structlog.get_logger(__name__)


class TlsListener:
    """The listening sockets of one server with TLS.

    ``connections`` are those past their handshake, ``make`` returns the protocol of a new one.
    """

    def __init__(
        self,
        tls: TlsFiles,
        limits: HttpLimits,
        counters: HttpCounters,
        connections: Sized,
        make: Callable[[], BoundedProtocol],
    ) -> None:
        self._tls = tls
        self._limits = limits
        self._counters = counters
        self._connections = connections
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._queue = HandshakeQueue(HANDSHAKES_AT_ONCE)
        self._log_throttle: LogThrottle[tuple[HandshakeFailure, str]] = LogThrottle()

    def listen(self, sockets: list[socket.socket]) -> None:
        """Accept connections on ``sockets``, which listen already and do not block."""
        for each in sockets:
            self._sockets.append(each)
            self._loop.add_reader(each, self._accept, each)

    async def close(self) -> None:
        """Close the listening sockets, and the connections whose handshake has not ended."""
        while self._sockets:
            each = self._sockets.pop()
            self._loop.remove_reader(each)
            each.close()
        await asyncio.sleep(0)  # a task that is cancelled before its first step would not close its socket
        for task in self._handshakes:
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def log_suppressed(self) -> None:
        """Log how many failures were not logged. To be called about twice a second."""
        for key, left_out in self._log_throttle.left_out(self._now_ms()):
            reason, client = (key[0].value, key[1]) if key else ("any", "others")
            log.warning("More TLS handshakes failed", reason=reason, client=client, left_out=left_out)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    return
                # The socket stays readable: another try at once would keep the event loop busy.
                log.warning("Connections cannot be accepted", error=str(error))
                self._loop.remove_reader(listening)
                self._loop.call_later(ACCEPT_RETRY_S, self._resume, listening)
                return
            if len(self._connections) + len(self._handshakes) >= self._limits.connections:
                # An answer would need the handshake, which costs most.
                self._counters.refused_connections += 1
                sock.close()
                continue
            sock.setblocking(False)
            self._counters.handshakes += 1
            task = self._loop.create_task(self._serve(sock, shown_address(address[0])))
            self._handshakes.add(task)
            task.add_done_callback(self._end)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._handshakes.discard(task)
        self._counters.handshakes -= 1

    async def _serve(self, sock: socket.socket, client: str) -> None:
        """Wait for the first bytes on ``sock``, and do the handshake if they are TLS."""
        failure: Failure | None = None
        begun = False
        try:
            async with asyncio.timeout(self._limits.head_s):
                first = await self._first_bytes(sock)
                if first.startswith(HANDSHAKE_RECORD):
                    await self._queue.enter(client)
            if first.startswith(HANDSHAKE_RECORD):
                try:
                    tls = self._tls.current()
                    begun = True
                    failure = await self._handshake(sock, tls)
                finally:
                    self._queue.leave(client)
            elif first:
                failure = _refuse(sock, first)
        except Exception as error:  # noqa: BLE001
            # Mostly an OSError of OpenSSL or the network, but an odd certificate may raise anything: this connection
            # ends, its reason is logged, and the others go on.
            failure = failure_of(error)
        finally:
            if not begun:
                sock.close()  # else the transport does it
        if failure is not None:
            self._log_failure(failure, client)

    async def _first_bytes(self, sock: socket.socket) -> bytes:
        """The first bytes, which stay to be read; none if the client left."""
        readable = asyncio.Event()
        self._loop.add_reader(sock, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(sock)
        try:
            return sock.recv(16, socket.MSG_PEEK)
        except OSError:
            return b""

    async def _handshake(self, sock: socket.socket, tls: ServerTls) -> Failure | None:
        """Raises `TimeoutError`, and what OpenSSL and the network raise."""
        handshake = _Handshake(self._make, sock, asks=tls.authorities is not None)
        async with asyncio.timeout(min(HANDSHAKE_S, self._limits.head_s)):
            await self._loop.connect_accepted_socket(
                lambda: handshake, sock, ssl=tls.context, ssl_shutdown_timeout=SHUTDOWN_S
            )
        # Where a connection ends without an error in its handshake, asyncio returns as after a good one.
        return None if handshake.completed else GONE

    def _log_failure(self, failure: Failure, client: str) -> None:
        """Count a failed handshake, and log it unless one alike was logged within the last second."""
        self._counters.handshakes_failed[failure.reason] += 1
        left_out = self._log_throttle.tell((failure.reason, client), self._now_ms())
        if left_out is None:
            return
        more = {"left_out": left_out} if left_out else {}
        log.warning("A TLS handshake failed", reason=failure.reason.value, detail=failure.text, client=client, **more)

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1_000)


class _Handshake(asyncio.Protocol):
    """Makes the connection's own protocol when the handshake is over: without a connection that would be garbage."""

    def __init__(self, make: Callable[[], BoundedProtocol], sock: socket.socket, *, asks: bool) -> None:
        self.completed = False
        self._make = make
        self._sock = sock
        self._asks = asks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # sockets are streams
        self.completed = True
        transport.set_write_buffer_limits(high=BUFFERED_BYTES)
        protocol = self._make()
        protocol.tls = TlsConnection(self._sock, transport, asks=self._asks)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


def _refuse(sock: socket.socket, first: bytes) -> Failure:
    """Answer a client that does not speak TLS: with a sentence if it speaks HTTP."""
    is_http = HTTP_REQUEST.match(first) is not None
    try:
        # With bytes unread, the kernel would reset the connection, and the client might lose the answer.
        sock.recv(64 * 1024)
        if is_http:
            sock.send(HTTPS_WANTED)
    except OSError:
        pass  # the client has left
    return PLAIN_HTTP if is_http else NO_TLS
