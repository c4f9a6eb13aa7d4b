"""One request and its answer, between the parser and the application.

It stands in for uvicorn's own class, which writes the head of an answer by itself: on a kept connection that is two
system calls and two packets for each answer, a third of what a heartbeat costs. Here the head waits for the first
bytes of the body, and nothing that an answer has in common with the one before is looked at twice.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import structlog
from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

JOIN_UP_TO_BYTES = 16 * 1024
"""Copying so much into one buffer costs less than handing over several; what is larger is never copied."""

TOGETHER_BYTES = 512 * 1024
"""A body of known length is handed over in parts of at least so much: a list of a megabyte in eight parts took 80 us
more than in two. It is also what a client that reads nothing may hold on to; with a part of 1.25 MB a list of ten
megabytes took twice as long, as it no longer stayed in the processor's cache."""

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus if status >= 200
}

log = structlog.get_logger(__name__)


class RequestResponseCycle:
    """The names are those that uvicorn's protocol uses of its own class, `RequestResponseCycle`."""

    __slots__ = (
        "_chunked",
        "_flow",
        "_head",
        "_left_bytes",
        "_on_response",
        "_parts",
        "_parts_bytes",
        "_scope",
        "_state",
        "_task",
        "_transport",
        "_unmeasured",
        "_waiting_for_100_continue",
        "body",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "response_started",
    )

    def __init__(
        self,
        *,
        scope: Scope,
        transport: asyncio.Transport,
        flow: FlowControl,
        state: ServerState,
        expect_100_continue: bool,
        keep_alive: bool,
        on_response: Callable[[], None],
    ) -> None:
        self._scope = scope
        self._transport = transport
        self._flow = flow
        self._state = state
        self._waiting_for_100_continue = expect_100_continue
        self._on_response = on_response
        self._head: Message | None = None
        self._task: asyncio.Task[None] | None = None
        self._parts: list[bytes | memoryview] = []
        self._parts_bytes = 0
        self._chunked = False
        self._unmeasured = False
        self._left_bytes = 0
        self.keep_alive = keep_alive
        self.message_event = asyncio.Event()
        self.body = bytearray()
        self.more_body = True
        self.disconnected = False
        self.response_started = False
        self.response_complete = False

    def start(self, loop: asyncio.AbstractEventLoop, app: ASGIApp, tasks: set["asyncio.Task[None]"]) -> None:
        """Let ``app`` answer in a task, which is in ``tasks`` while it runs."""
        self._task = loop.create_task(self._run(app, tasks))
        tasks.add(self._task)

    def disconnect(self) -> None:
        """The client has gone: whoever waits for the rest of the request, or for its end, is told."""
        self.disconnected = True
        self.message_event.set()

    async def _run(self, app: ASGIApp, tasks: set["asyncio.Task[None]"]) -> None:
        """Whatever ``app`` leaves undone closes the connection: the client must not wait for it."""
        try:
            await app(self._scope, self.receive, self.send)
        except Exception:
            # The application answers its own errors; one that gets here came too late for that.
            log.exception("An answer broke off", path=self._scope["path"])
        finally:
            if not self.response_complete and not self.disconnected:
                self._transport.close()
            # These lead back here: with them, each connection that closes would be left to the garbage collector.
            self._on_response = _nothing
            tasks.discard(cast("asyncio.Task[None]", self._task))
            self._task = None

    async def receive(self) -> Message:
        """The next part of the request (ASGI)."""
        if self._waiting_for_100_continue and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self._flow.resume_reading()
            if not self.message_event.is_set():
                await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body = bytes(self.body)
        self.body = bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        """The next part of the answer (ASGI). Waits while the client does not read what it was sent."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._head = message
            self.response_started = True
            self._waiting_for_100_continue = False
            return
        self._write(message["body"], more=message.get("more_body", False))

    def _write(self, body: bytes | memoryview, *, more: bool) -> None:
        if self._head is not None:
            self._parts.append(self._encode_head(self._head))
            self._head = None
        self._frame(body, more=more)
        if more and self._left_bytes > 0 and self._parts_bytes < TOGETHER_BYTES:
            return
        if self._parts:
            self._hand_over()
        if not more:
            self._complete()

    def _frame(self, body: bytes | memoryview, *, more: bool) -> None:
        if self._scope["method"] == "HEAD":
            self._left_bytes = 0
            return
        self._parts_bytes += len(body)
        if self._chunked:
            if body:
                self._parts += (b"%x\r\n" % len(body), body, b"\r\n")
            if not more:
                self._parts.append(b"0\r\n\r\n")
            return
        if not self._unmeasured:
            self._left_bytes -= len(body)
        if body:
            self._parts.append(body)

    def _hand_over(self) -> None:
        parts, self._parts = self._parts, []
        if self._parts_bytes <= JOIN_UP_TO_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)
        self._parts_bytes = 0

    def _complete(self) -> None:
        assert self._left_bytes == 0, "an answer is as long as it said"
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self._transport.close()
        self._on_response()

    def _encode_head(self, message: Message) -> bytes:
        status = message["status"]
        parts = [STATUS_LINES[status]]
        length = None
        # Read only now: an answer that was asked for before the service began to drain closes its connection too.
        for name, value in (*self._state.default_headers, *message["headers"]):
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            parts += (name, b": ", value, b"\r\n")
        lines = len(parts) // 4 + 1
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
            lines += 1
        if length is not None:
            self._left_bytes = length
        elif self._scope["method"] != "HEAD" and status not in (204, 304):
            # HTTP/1.0 knows no chunks: there the end of the connection, which is never kept, ends the body.
            self._unmeasured = self._scope["http_version"] == "1.0"
            self._chunked = not self._unmeasured
            if self._chunked:
                parts.append(b"transfer-encoding: chunked\r\n")
                lines += 1
        head = b"".join(parts)
        # No value comes from a request today. Were one ever to, it must not be able to write headers of its own.
        if head.count(b"\n") != lines:
            raise ValueError("a header is one line")
        return head + b"\r\n"


def _nothing() -> None:
    """There is nobody to tell."""
