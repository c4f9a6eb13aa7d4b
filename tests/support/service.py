"""One instance in this process, on a clock that the test moves, spoken to through ASGI: no socket, no real time."""

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import msgspec
from starlette.types import Message, Scope

from poolmuster.api.metrics import Metrics
from poolmuster.api.request import ApiLimits
from poolmuster.api.routes import build_apps
from poolmuster.http.auth import AccessPolicy, Authorizer
from poolmuster.http.auth_log import AuthFailureLog
from poolmuster.http.limits import HttpCounters
from poolmuster.model.key import PoolKey
from poolmuster.programs.serve import build_instance
from poolmuster.programs.settings.serve import ServeLimits, ServeSettings
from tests.support.clock import ManualClock
from tests.support.registrations import body as registration_body
from tests.support.streams import Copy, Event, read_ndjson, read_sse

NDJSON = "application/x-ndjson"
LEASE_MS = 15_000


class Answer(msgspec.Struct):
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def _scope(method: str, target: str, headers: dict[str, str]) -> Scope:
    path, _, query = target.partition("?")
    named = {"host": "localhost", **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }


class Stream:
    """A watch that is open. What was sent is in ``data``; `stall` makes it a reader that takes no more."""

    def __init__(self, app: Any, target: str, headers: dict[str, str]) -> None:
        self.sse = headers.get("accept") != NDJSON
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.data = bytearray()
        self.taken = 0
        self._gone = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        self.task = asyncio.create_task(app(_scope("GET", target, headers), self._receive, self._send))

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            return
        await self._reads.wait()
        if not self._gone.is_set():
            self.data += message["body"]

    def stall(self) -> None:
        """Read no more, so that the service has to wait."""
        self._reads.clear()

    def read_on(self) -> None:
        """Read again."""
        self._reads.set()

    def cut(self) -> None:
        """Go away."""
        self._reads.set()
        self._gone.set()

    @property
    def ended(self) -> bool:
        """Whether the service ended the stream."""
        return self.task.done()

    @property
    def events(self) -> list[Event]:
        """All whole events so far."""
        return read_sse(bytes(self.data)) if self.sse else read_ndjson(bytes(self.data))

    def take(self) -> list[Event]:
        """The events since the last call."""
        events = self.events[self.taken :]
        self.taken += len(events)
        return events

    def copy(self) -> Copy:
        """What its events come to."""
        copy = Copy()
        for event in self.events:
            copy.take(event)
        return copy


class Service:
    """`poolmuster serve` without sockets. Use as ``async with``; time moves with `ManualClock.advance` only."""

    def __init__(
        self,
        clock: ManualClock | None = None,
        *,
        boot_id: str = "boot",
        limits: ServeLimits | None = None,
        streams: int = 4_000,
        loopback_only: bool = True,
        authorizer: Authorizer | None = None,
        refusals: AuthFailureLog | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.draw: Callable[[int, int], int] = min
        limits = limits or ServeLimits()
        self.metrics = Metrics()
        self.settings = ServeSettings(limits=limits, **settings)
        self.instance = build_instance(self.settings, self.clock, self.metrics, boot_id)
        self.app, self.health_app = build_apps(
            self.instance,
            self.metrics,
            ApiLimits(
                body_bytes=limits.body_bytes,
                streams=streams,
                streams_per_credential=limits.streams_per_credential,
            ),
            HttpCounters(),
            AccessPolicy(authorizer=authorizer or Authorizer(None), auth_log=refusals, loopback_only=loopback_only),
            random_ms=self._random_ms,
        )
        self.streams: list[Stream] = []
        self._tasks: list[asyncio.Task[None]] = []

    def _random_ms(self, low: int, high: int) -> int:
        return self.draw(low, high)

    async def __aenter__(self) -> Self:
        for run in self.instance.tasks:
            self._tasks.append(asyncio.create_task(run()))
        await self.clock.settle()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def kill(self) -> None:
        """Be gone at once, as by SIGKILL: streams just end."""
        for task in [*self._tasks, *(stream.task for stream in self.streams)]:
            task.cancel()
        results = await asyncio.gather(*self._tasks, *(stream.task for stream in self.streams), return_exceptions=True)
        self._tasks.clear()
        self.streams.clear()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def request(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        before_body: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Ask, and wait for the whole answer. ``before_body`` is called between the head and the body."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        answer = Answer(0, {}, b"")

        async def receive() -> Message:
            if not messages:
                return {"type": "http.disconnect"}
            before_body()
            return messages.pop()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            else:
                answer.body += message["body"]

        await self.app(_scope(method, target, headers or {}), receive, send)
        return answer

    async def get(self, target: str = "/pools", headers: dict[str, str] | None = None) -> Answer:
        """``GET``."""
        return await self.request("GET", target, headers)

    async def register(self, name: str = "a", cluster: str = "c", **facts: Any) -> Answer:
        """``POST /pools``."""
        return await self.post(registration_body(name, cluster, **facts))

    async def post(self, content: bytes, content_type: str = "application/json") -> Answer:
        """``POST /pools`` with just these bytes."""
        return await self.request("POST", "/pools", {"content-type": content_type}, content)

    async def leave(self, name: str = "a", cluster: str = "c", query: str = "") -> Answer:
        """``DELETE /pools/{key}``."""
        return await self.request("DELETE", path_of(PoolKey(cluster, "n", name)) + query)

    async def follow_as_peer(self, headers: dict[str, str] | None = None) -> Stream:
        """Open a stream as a peer does."""
        stream = Stream(self.app, "/peer/v1/stream", {"accept": NDJSON, **(headers or {})})
        self.streams.append(stream)
        await self.clock.settle()
        return stream

    async def watch(
        self, query: str = "", last_id: str | None = None, *, sse: bool = True, headers: dict[str, str] | None = None
    ) -> Stream:
        """Open a watch and let it say what it has to say at once."""
        headers = dict(headers or {}) | ({} if sse else {"accept": NDJSON})
        if last_id is not None:
            headers["last-event-id"] = last_id
        stream = Stream(self.app, "/pools/watch" + query, headers)
        self.streams.append(stream)
        await self.clock.settle()
        return stream

    async def warm_up(self) -> None:
        """Let a lease pass, so that the list is complete."""
        await self.clock.advance(self.settings.policy.duration_ms)


def path_of(key: PoolKey) -> str:
    """The path of one pool."""
    return "/pools/" + "/".join(quote(part, safe="") for part in key.parts)


def pools_of(answer: Answer) -> bytes:
    """The bytes of the member ``pools`` in a list's answer."""
    start = answer.body.index(b'"pools":') + len(b'"pools":')
    end = answer.body.rindex(b',"complete":', start, answer.body.rindex(b',"sources":'))
    return answer.body[start:end]
