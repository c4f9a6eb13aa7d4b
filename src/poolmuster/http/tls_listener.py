"""Where connections come in, until TLS has begun on them.

The server accepts plain connections and begins TLS on each itself, with the certificate of that moment. asyncio could
accept encrypted ones, but with one certificate for ever, and it swallows why a handshake failed.
"""

import asyncio
from collections.abc import Callable, Sized
from typing import Any

import structlog

from poolmuster.http.auth_log import shown_address
from poolmuster.http.handshake_queue import HandshakeQueue
from poolmuster.http.limits import HandshakeFailure, HttpCounters, HttpLimits
from poolmuster.http.log_throttle import LogThrottle
from poolmuster.http.protocol import BoundedProtocol
from poolmuster.http.tls import TlsInfo, TlsSource
from poolmuster.http.tls_errors import GONE, TIMED_OUT, Failure, failure_of

SHUTDOWN_S = 24 * 3600.0
"""asyncio's own limit on a connection's end would cut off an answer that is read slowly: `BoundedProtocol.sweep` sees
whether anything moves."""

HANDSHAKES_AT_ONCE = 256
"""Each holds about 170 KB until its client has answered."""

HANDSHAKE_S = 5.0
"""How long one may take once it has begun, where a head has longer."""

TIMER_S = 0.05
"""The least time that a handshake gets, and by how much a timer may be early."""

BUFFERED_BYTES = 64 * 1024
"""As much as of a plain connection. asyncio would take half a megabyte, and notice late that a client reads nothing."""

log = structlog.get_logger(__name__)


class TlsListener:
    """All the doors of one server. ``connections`` are those that have come in; ``make`` gives them their protocol."""

    def __init__(
        self,
        tls: TlsSource,
        limits: HttpLimits,
        counters: HttpCounters,
        connections: Sized,
        make: Callable[[], BoundedProtocol],
    ) -> None:
        self.tls = tls
        self.limits = limits
        self.counters = counters
        self.make = make
        self.doors: set[TlsHandshake] = set()
        self.turns = HandshakeQueue(HANDSHAKES_AT_ONCE)
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._lines: LogThrottle[tuple[HandshakeFailure, str]] = LogThrottle()

    def __call__(self) -> "TlsHandshake":
        """What ``loop.create_server`` calls for each connection."""
        return TlsHandshake(self, self._loop)

    @property
    def full(self) -> bool:
        """Whether there are as many connections as there may be."""
        return len(self._connections) + len(self.doors) >= self.limits.connections

    def failed(self, failure: Failure, client: str) -> None:
        """Count a handshake that came to nothing, and say so unless the like was said within the last second."""
        self.counters.handshakes_failed[failure.reason] += 1
        left_out = self._lines.tell((failure.reason, client), self._now_ms())
        if left_out is None:
            return
        more = {"left_out": left_out} if left_out else {}
        log.warning("A TLS handshake failed", reason=failure.reason.value, detail=failure.text, client=client, **more)

    def sweep(self) -> None:
        """Drop those who say nothing, and say how many failures were left out since. Called twice a second."""
        now_s = self._loop.time()
        for door in list(self.doors):
            door.sweep(now_s)
        for key, left_out in self._lines.left_out(self._now_ms()):
            reason, client = (key[0].value, key[1]) if key else ("any", "others")
            log.warning("More TLS handshakes failed", reason=reason, client=client, left_out=left_out)

    def close(self) -> None:
        """Drop those whose handshake has not ended."""
        for door in list(self.doors):
            door.drop()

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1_000)


class TlsHandshake(asyncio.Protocol):
    """One connection until TLS has begun on it.

    Nothing is set up for it before its first bytes have come: who only looks whether the port is open, as probes and
    balancers do every few seconds, costs nothing and has not failed.
    """

    def __init__(self, entrance: TlsListener, loop: asyncio.AbstractEventLoop) -> None:
        self._entrance = entrance
        self._loop = loop
        self._deadline_s = loop.time() + entrance.limits.head_s
        self._beneath: Any = None
        self._client = "unknown"
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # sockets are streams
        counters = self._entrance.counters
        if self._entrance.full:
            # An answer would need the handshake, which is what costs most.
            counters.refused_connections += 1
            transport.abort()
            return
        self._beneath = transport
        # Asked now: uvloop no longer knows once the connection is lost.
        self._client = shown_address((transport.get_extra_info("peername") or ("unknown",))[0])
        self._entrance.doors.add(self)
        counters.handshakes += 1

    def data_received(self, data: bytes) -> None:
        if self._beneath is not None and self._task is None:
            # Not another byte may be read before OpenSSL is there to take it.
            self._beneath.pause_reading()
            self._task = self._loop.create_task(self._open(data))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is None:
            self._leave(None)

    def sweep(self, now_s: float) -> None:
        """Drop the connection if nothing has come in time."""
        if self._task is None and now_s >= self._deadline_s:
            self._leave(TIMED_OUT)

    def drop(self) -> None:
        """End the connection at once."""
        task = self._task
        self._leave(None)
        if task is not None:
            task.cancel()

    def _leave(self, failure: Failure | None, *, inside: bool = False) -> None:
        """It is this door's no more: it is ``inside``, or dropped."""
        beneath, self._beneath, self._task = self._beneath, None, None
        if beneath is None:
            return
        self._entrance.doors.discard(self)
        self._entrance.counters.handshakes -= 1
        if failure is not None:
            self._entrance.failed(failure, self._client)
        if not inside:
            beneath.abort()

    async def _open(self, first: bytes) -> None:
        failure: Failure | None = None
        inside = False
        turns = self._entrance.turns
        await turns.enter(self._client)
        try:
            if self._loop.time() >= self._deadline_s:
                failure = TIMED_OUT  # it has waited for longer than anybody would for the answer
                return
            self._deadline_s = self._loop.time() + min(HANDSHAKE_S, self._entrance.limits.head_s)
            failure = await self._begin(self._beneath, first)
            inside = failure is None
        except Exception as error:  # noqa: BLE001
            # Mostly an OSError of OpenSSL's or the network's, but an odd certificate may raise what it likes: the
            # connection ends, its reason is logged, and everybody else's go on.
            late = self._loop.time() >= self._deadline_s - TIMER_S
            failure = TIMED_OUT if late and isinstance(error, ConnectionAbortedError) else failure_of(error)
        finally:
            turns.leave()
            self._leave(failure, inside=inside)

    async def _begin(self, beneath: Any, first: bytes) -> Failure | None:
        """Shake hands, and let the connection in. Returns why not; raises what OpenSSL and the network raise."""
        entrance = self._entrance
        tls = entrance.tls.current()
        early = _Early()
        # Runs as soon as the next line waits: then asyncio's protocol of TLS has taken this one's place.
        self._loop.call_soon(self._feed, beneath, first)
        transport = await self._loop.start_tls(
            beneath,
            early,
            tls.context,
            server_side=True,
            ssl_handshake_timeout=max(TIMER_S, self._deadline_s - self._loop.time()),
            ssl_shutdown_timeout=SHUTDOWN_S,
        )
        ssl_object = transport.get_extra_info("ssl_object") if transport is not None else None
        if transport is None or ssl_object is None or early.lost:
            return GONE
        transport.set_write_buffer_limits(high=BUFFERED_BYTES)
        protocol = entrance.make()
        protocol.tls = TlsInfo(beneath, transport, asks=tls.authorities is not None)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        early.hand_over(protocol)
        return None

    def _feed(self, beneath: Any, data: bytes) -> None:
        """Hand on what came before TLS began, as a transport does."""
        protocol = beneath.get_protocol()
        if protocol is self:
            return  # it did not even begin
        rest = memoryview(data)
        while rest:
            buffer = protocol.get_buffer(len(rest))
            part = rest[: len(buffer)]
            buffer[: len(part)] = part
            protocol.buffer_updated(len(part))
            rest = rest[len(part) :]


class _Early(asyncio.Protocol):
    """Keeps what comes with the last bytes of a handshake, before there is anybody to take it."""

    def __init__(self) -> None:
        self.lost = False
        self._data: list[bytes] = []
        self._next: Any = None

    def data_received(self, data: bytes) -> None:
        self._data.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        # asyncio may have asked for this call when the connection was ours still.
        if self._next is not None:
            self._next.connection_lost(exc)
            self._next = None

    def hand_over(self, protocol: BoundedProtocol) -> None:
        """From here on ``protocol`` takes what comes."""
        self._next = protocol
        data, self._data = self._data, []
        for part in data:
            protocol.data_received(part)
