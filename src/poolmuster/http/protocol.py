"""uvicorn's HTTP protocol with the bounds it lacks.

uvicorn limits neither the time nor the size of a request's head, nor the time of a body, and a client that reads
nothing holds its connection for ever. Each connection here knows its own deadline, and one sweep a half second looks
at all of them: no timer is set and cancelled for each request.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from poolmuster.http.cycle import RequestResponseCycle
from poolmuster.http.limits import HttpCounters, HttpLimits
from poolmuster.http.problems import BAD_REQUEST, Headers, raw_response
from poolmuster.http.tls import TlsConnection
from poolmuster.model.errors import HeadersTooLarge, PoolmusterError, RequestTimeout, Unavailable

ASGI_VERSION = {"version": "3.0", "spec_version": "2.3"}
HEADER_OVERHEAD_BYTES = 4
"""What a header costs in a head beside its name and value: the colon, a space and the end of the line."""

CLOSE_S = 1.0
"""How long a client over TLS gets to say that it closes too, once all was sent. Most do at once, some never."""


class _HeadTooLarge(Exception):
    """Raised out of the parser's callbacks to stop it."""


class _NotHttp(Exception):
    """As `_HeadTooLarge`: a version or a transfer coding that this server does not speak."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection, within `HttpLimits`."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        loop: asyncio.AbstractEventLoop,
        limits: HttpLimits,
        counters: HttpCounters,
        headers: Callable[[], Headers],
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={}, _loop=loop)
        self._limits = limits
        self._counters = counters
        self._headers_of_all = headers
        self.tls: TlsConnection | None = None
        self._answered: RequestResponseCycle | None = None
        self._deaf = False
        self._other_bytes = 0
        self._parsed_bytes = 0
        self._in_head = False
        self._too_large = False
        self._deadline_s: float | None = None
        self._stalled_since_s: float | None = None
        self._stalled_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn types it
        super().connection_made(transport)
        self._counters.connections += 1
        if len(self.connections) > self._limits.connections and not self._makes_room():
            self._counters.refused_connections += 1
            self._refuse(Unavailable("This instance has as many connections as it may."))
            return
        self._deadline_s = self.loop.time() + self._limits.idle_s

    def _makes_room(self) -> bool:
        """Close a connection on which nothing is being answered, if that is wanted and there is one."""
        if self._limits.makes_room:
            for other in self.connections:
                if other is not self and isinstance(other, BoundedProtocol) and other.is_idle:
                    other.drop()
                    return True
        return False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered."""
        exchange: RequestResponseCycle | None = self.cycle  # type: ignore[assignment]  # as in on_headers_complete
        return exchange is None or exchange.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._counters.connections -= 1
        self._deadline_s = None
        # uvicorn tells the newest request alone; where others wait behind one, that one is being answered.
        if self._answered is not None:
            self._answered.disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf or self.transport.is_closing():
            return
        # The parser keeps an unfinished header, and an unfinished trailer too: both are bounded by what was received
        # since the last that was a body's, or ended something.
        self._other_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No protocol is upgraded to here. The request is answered as it stands; what follows it is not HTTP.
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            if self._too_large:
                self._refuse_head()
                return
            self._counters.malformed += 1
            self._reject_and_close(BAD_REQUEST)
            return
        if self._other_bytes > self._limits.head_bytes:
            self._refuse_head()

    # The parser calls these for every request and every header, so they call nothing: a heartbeat costs 3 us less than
    # with uvicorn's methods of the same names under them.

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._in_head = True
        self._other_bytes = 0
        self._deadline_s = self.loop.time() + self._limits.head_s

    def on_url(self, url: bytes) -> None:
        self.url += url
        self._parsed_bytes += len(url)
        if self._parsed_bytes > self._limits.head_bytes:
            self._stop_parsing()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer (RFC 9110, 6.5.1): whoever looked at the head before us has not seen it
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            raise _NotHttp
        self.headers.append((name, value))
        self._parsed_bytes += len(name) + len(value) + HEADER_OVERHEAD_BYTES
        if self._parsed_bytes > self._limits.head_bytes:
            self._stop_parsing()

    def _stop_parsing(self) -> None:
        self._too_large = True
        raise _HeadTooLarge

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._parsed_bytes = self._other_bytes = 0
        self._deadline_s = self.loop.time() + self._limits.body_s
        parser = self.parser
        http_version = parser.get_http_version()
        if http_version not in ("1.0", "1.1"):
            raise _NotHttp
        earlier: RequestResponseCycle | None = self.cycle  # type: ignore[assignment]  # uvicorn's type leaves out that there is none
        exchange = RequestResponseCycle(
            scope=self._scope(http_version),
            transport=self.transport,
            flow=self.flow,
            state=self.server_state,
            expect_100_continue=self.expect_100_continue and http_version == "1.1",
            keep_alive=http_version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self.cycle = exchange  # type: ignore[assignment]  # it is what Exchange stands in for
        if earlier is None or earlier.response_complete:
            self._start_asgi_task(exchange, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _scope(self, http_version: str) -> Scope:
        url = httptools.parse_url(self.url)
        headers, path = self.headers, url.path
        if url.host is not None:
            headers, path = _with_host(headers, url.host), path or b"/"
        scope: Scope = {
            "type": "http",
            "asgi": ASGI_VERSION,
            "http_version": http_version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": headers,
            "method": self.parser.get_method().decode("ascii"),
            "path": path.decode("ascii"),
            "raw_path": path,
            "query_string": url.query or b"",
        }
        if self.tls is not None and self.tls.asks:
            scope["certificate"] = self.tls.certificate
        return scope

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answered = cycle
        cycle.start(self.loop, app, self.tasks)

    def on_body(self, body: bytes) -> None:
        self._other_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._other_bytes = 0
        super().on_message_complete()
        self._deadline_s = self.loop.time() + self._limits.idle_s if self.cycle.response_complete else None

    def on_response_complete(self) -> None:
        # The idle time is a deadline like the others, not a timer that uvicorn sets and cancels for each request.
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.cycle.response_complete and not self._in_head:
            self._deadline_s = self.loop.time() + self._limits.idle_s

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_since_s = self.loop.time()
        self._stalled_bytes = self._unsent_bytes()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_since_s = None

    def _refuse_head(self) -> None:
        self._counters.heads_too_large += 1
        self._refuse(HeadersTooLarge(f"The head of a request is at most {self._limits.head_bytes} bytes."))

    def _refuse(self, error: PoolmusterError) -> None:
        self._reject_and_close(raw_response(error, self._headers_of_all()))

    def _reject_and_close(self, answer: bytes) -> None:
        """Read no more from this connection, and close it.

        ``answer`` is for what was just refused. Where whole requests before it are still being answered, it would be
        read as the answer to one of them: these are answered as if nothing had followed, and then the connection ends.
        """
        self._deadline_s = None
        self._deaf = True
        cycle: RequestResponseCycle | None = self.cycle  # type: ignore[assignment]  # as in on_headers_complete
        if cycle is None or cycle.response_complete:
            self.transport.write(answer)
            self.transport.close()
        elif not cycle.more_body:
            cycle.keep_alive = False
        elif cycle.response_started or self.pipeline:
            self.drop()
        else:
            self.transport.write(answer)
            self.transport.close()

    def sweep(self, now_s: float) -> None:
        """Close what has overrun a limit. Called twice a second."""
        if self._deadline_s is not None and now_s >= self._deadline_s:
            self._deadline_passed()
        if self._stalled_since_s is None and self.transport.is_closing():
            self._stalled_since_s, self._stalled_bytes = now_s, self._unsent_bytes()
        if self._stalled_since_s is not None:
            self._sweep_stalled(now_s, self._stalled_since_s)

    def _sweep_stalled(self, now_s: float, since_s: float) -> None:
        left_bytes = self._unsent_bytes()
        if left_bytes != self._stalled_bytes:
            self._stalled_since_s, self._stalled_bytes = now_s, left_bytes
        elif left_bytes and now_s - since_s >= self._limits.send_stall_s:
            self._counters.sends_stalled += 1
            self.drop()
        elif not left_bytes and self.transport.is_closing() and now_s - since_s >= CLOSE_S:
            self.drop()

    def _unsent_bytes(self) -> int:
        if self.tls is None:
            return self.transport.get_write_buffer_size()
        # asyncio's transport may not be asked once it closes. While it has anything to send, so has the kernel.
        buffered_bytes = 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()
        return buffered_bytes + self.tls.unsent_bytes()

    def drop(self) -> None:
        """End the connection at once, with whatever was not sent."""
        self.transport.abort()
        if self.tls is not None:
            self.tls.disconnect()

    def _deadline_passed(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # type: ignore[assignment]  # uvicorn's type leaves out that there is none at first
        if self._in_head:
            self._counters.heads_too_slow += 1
            self._refuse(RequestTimeout(f"The head of a request is awaited for {self._limits.head_s:g} s at most."))
        elif cycle is None or cycle.response_complete:
            self._deadline_s = None
            self.transport.close()
        else:
            self._counters.bodies_too_slow += 1
            self._refuse(RequestTimeout(f"The body of a request is awaited for {self._limits.body_s:g} s at most."))

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: anyone could fill the log with it."""


def _with_host(headers: Headers, host: bytes) -> Headers:
    """RFC 9112, 3.2.2: where the target of a request names a host, that one counts and not the header's."""
    if b":" in host:
        host = b"[%b]" % host
    return [(name, host if name == b"host" else value) for name, value in headers]


def protocol_factory(
    config: Config, state: ServerState, limits: HttpLimits, counters: HttpCounters, headers: Callable[[], Headers]
) -> Any:
    """What ``loop.create_server`` calls for each connection."""
    loop = asyncio.get_running_loop()
    return lambda: BoundedProtocol(config, state, loop, limits, counters, headers)
