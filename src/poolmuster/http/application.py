"""The ASGI application of every program: it dispatches requests, authorizes them, and answers errors with problems.

Method and path give the role that a request needs and the handler that answers it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from urllib.parse import unquote_to_bytes

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poolmuster.http.auth import Authorizer
from poolmuster.http.auth_log import AuthFailureLog
from poolmuster.http.limits import HttpCounters
from poolmuster.http.problems import Headers, problem_response
from poolmuster.http.trusted_host import host_of, is_loopback
from poolmuster.model.auth import Role
from poolmuster.model.errors import (
    BodyTooLarge,
    Forbidden,
    InvalidInput,
    MethodNotAllowed,
    MisdirectedHost,
    NotFound,
    PoolmusterError,
    Unauthenticated,
    UnsupportedMediaType,
)
from poolmuster.model.percent import check_percent_signs
from poolmuster.model.source import SourceInfo

HOSTS_REMEMBERED = 16
LINGER_S = 1.0
LINGER_BYTES = 4 * 1024 * 1024

Handler = Callable[[Request], Awaitable[Response]]

log = structlog.get_logger(__name__)


class Endpoint:
    """One path, and for each method the role it needs and the application that answers it.

    A segment ``{name}`` of the path matches any segment, also an empty one, and becomes a path parameter. An endpoint
    whose roles are all ``None`` is open: it needs no credentials. `HEAD` is added wherever `GET` is.
    """

    def __init__(self, path: str, **methods: tuple[Role | None, ASGIApp]) -> None:
        if "GET" in methods:
            methods["HEAD"] = methods["GET"]
        self.path = path
        self.methods = methods
        self.is_open = all(role is None for role, _ in methods.values())
        self._segments = path.split("/")

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters of ``path``, still percent-encoded; ``None`` where this is not its endpoint."""
        segments = path.split("/")
        if len(segments) != len(self._segments):
            return None
        pairs = list(zip(self._segments, segments, strict=True))
        if any(own != segment for own, segment in pairs if not own.startswith("{")):
            return None
        return {own[1:-1]: segment for own, segment in pairs if own.startswith("{")}


class Application:
    """The ASGI application of ``endpoints``. It answers every error with a problem.

    ``not_found`` is the text of the error for all other paths. ``headers`` gives the headers that each response has
    unless its handler sets them, ``sources`` what a problem of status 503 shows. With ``authorizer``, a request to any
    path but an open endpoint's needs credentials before the path is matched, so that the errors of the path show
    nothing without them. ``loopback_only`` refuses requests for other hosts, ``counters`` count bodies over the limit,
    and ``auth_log`` logs failed authorization.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        not_found: str = "There is nothing at this path.",
        headers: Callable[[], Headers] = list,
        sources: Callable[[], tuple[SourceInfo, ...]] = tuple,
        authorizer: Authorizer | None = None,
        loopback_only: bool,
        counters: HttpCounters | None = None,
        auth_log: AuthFailureLog | None = None,
    ) -> None:
        # Fixed paths are looked up; the others are matched in turn.
        self._fixed = {endpoint.path: endpoint for endpoint in endpoints if "{" not in endpoint.path}
        self._others = [endpoint for endpoint in endpoints if "{" in endpoint.path]
        self._not_found = not_found
        self._headers = headers
        self._sources = sources
        self._authorizer = authorizer
        self._loopback_only = loopback_only
        self._counters = counters or HttpCounters()
        self._auth_log = auth_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        def send_with_headers(message: Message) -> Awaitable[None]:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = message["headers"] = list(message["headers"])
                own = dict(headers)
                headers += [header for header in self._headers() if header[0] not in own]
            return send(message)

        try:
            if self._loopback_only:
                _check_host(scope)
            # Paths are matched as they were sent, so that %2F inside a key is not a separator.
            scope["path"] = scope["raw_path"].decode("ascii")
            await self._dispatch(scope)(scope, receive, send_with_headers)
        except PoolmusterError as error:
            if self._auth_log is not None and isinstance(error, Unauthenticated | Forbidden):
                self._auth_log.record(scope, error)
            if started:
                raise
            await self._answer(error, receive, send_with_headers)
        except Exception:
            # Whatever it was, the client gets a documented response and the log gets the cause.
            log.exception("A request failed", method=scope["method"], path=scope["path"])
            if not started:
                internal = PoolmusterError("Something went wrong here; the log knows what.")
                await self._answer(internal, receive, send_with_headers)

    def _dispatch(self, scope: Scope) -> ASGIApp:
        """The handler of a request that has the role for it."""
        endpoint = self._fixed.get(scope["path"])
        if endpoint is None:
            if self._authorizer is not None:
                self._authorizer.authorize(scope, None)
            endpoint = self._match(scope)
        role, handler = endpoint.methods.get(scope["method"], (None, None))
        if self._authorizer is not None and not endpoint.is_open:
            self._authorizer.authorize(scope, role)
        if handler is None:
            raise MethodNotAllowed(f"{scope['method']} is not known here.", tuple(sorted(endpoint.methods)))
        return handler

    def _match(self, scope: Scope) -> Endpoint:
        for endpoint in self._others:
            parameters = endpoint.match(scope["path"])
            if parameters is not None:
                scope["path_params"] = {name: _decoded(segment) for name, segment in parameters.items()}
                return endpoint
        raise NotFound(self._not_found)

    async def _answer(self, error: PoolmusterError, receive: Receive, send: Send) -> None:
        status, headers, body = problem_response(error, self._sources() if error.status == 503 else ())
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if not isinstance(error, BodyTooLarge):
            await send({"type": "http.response.body", "body": body})
            return
        self._counters.bodies_too_large += 1
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await _linger(receive)
        await send({"type": "http.response.body", "body": b""})


def _decoded(segment: str) -> str:
    """One segment, percent-decoded after the path was split, so that ``%2F`` stands for a slash inside it."""
    check_percent_signs(segment, "path")
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("The path is not UTF-8 once its percent signs are decoded.") from error


def responding(handler: Handler) -> ASGIApp:
    """The ASGI application that answers with the response of ``handler``."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)

    return app


async def read_json_body(scope: Scope, receive: Receive, limit_bytes: int) -> bytes:
    """The body of a request that must be JSON. Raises `UnsupportedMediaType`, `BodyTooLarge`."""
    length = None
    content_type = None
    for name, value in scope["headers"]:
        if name == b"content-type":
            # Two are refused: a proxy before this service may have used either.
            content_type = value if content_type is None else b""
        elif name == b"content-length":
            length = int(value)
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise UnsupportedMediaType("Send the body without a content encoding.")
    if content_type != b"application/json":
        _check_media_type(content_type)
    too_large = f"A body is at most {limit_bytes} bytes."
    if length is not None and length > limit_bytes:
        raise BodyTooLarge(too_large)
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInput("The client went away before its body was whole.")
        body += message.get("body", b"")
        if len(body) > limit_bytes:
            raise BodyTooLarge(too_large)
        more = message.get("more_body", False)
    return body


def _check_media_type(content_type: bytes | None) -> None:
    media_type = (content_type or b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json" and not (
        media_type.startswith(b"application/") and media_type.endswith(b"+json")
    ):
        raise UnsupportedMediaType("Send the header 'Content-Type: application/json', once.")


async def _linger(receive: Receive) -> None:
    """Read on for a moment: closing on unread data resets the connection, and the answer would be lost."""
    read_bytes = 0
    try:
        async with asyncio.timeout(LINGER_S):
            while read_bytes < LINGER_BYTES:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                read_bytes += len(message.get("body", b""))
    except TimeoutError:
        return


def _check_host(scope: Scope) -> None:
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if not hosts and scope["http_version"] == "1.0":
        return
    if len(hosts) != 1 or not _is_loopback(hosts[0]):
        raise MisdirectedHost("Without credentials this service answers only to loopback names such as localhost.")


@lru_cache(HOSTS_REMEMBERED)
def _is_loopback(header: bytes) -> bool:
    host = host_of(header.decode("latin-1"))
    return host is not None and is_loopback(host)
