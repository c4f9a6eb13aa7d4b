"""The outermost ASGI layer: every error becomes a problem, every answer bears the service's own headers."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poolmuster.http.auth_log import AuthFailureLog
from poolmuster.http.limits import HttpCounters
from poolmuster.http.problems import Headers, problem_response
from poolmuster.http.trusted_host import host_of, is_loopback
from poolmuster.model.errors import BodyTooLarge, Forbidden, MisdirectedHost, PoolmusterError, Unauthenticated
from poolmuster.model.source import SourceInfo

HOSTS_REMEMBERED = 16
LINGER_S = 1.0
LINGER_BYTES = 4 * 1024 * 1024

log = structlog.get_logger(__name__)


class ErrorMiddleware:
    """Wraps an application.

    ``headers`` gives what each answer bears that does not bring it itself; ``sources`` what a problem of status 503
    shows; ``loopback_only`` refuses requests that name another host; ``counters`` count the bodies over the limit, and
    ``refusals`` what credentials were not enough for.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        headers: Callable[[], Headers] = list,
        sources: Callable[[], tuple[SourceInfo, ...]] = tuple,
        loopback_only: bool,
        counters: HttpCounters | None = None,
        refusals: AuthFailureLog | None = None,
    ) -> None:
        self._app = app
        self._headers = headers
        self._sources = sources
        self._loopback_only = loopback_only
        self._counters = counters or HttpCounters()
        self._refusals = refusals

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
            # Routes match the path as it was sent, so that %2F inside a key is not a separator.
            scope["path"] = scope["raw_path"].decode("ascii")
            await self._app(scope, receive, send_with_headers)
        except PoolmusterError as error:
            if self._refusals is not None and isinstance(error, Unauthenticated | Forbidden):
                self._refusals.record(scope, error)
            if started:
                raise
            await self._answer(error, receive, send_with_headers)
        except Exception:
            # Whatever it was, the client gets an answer of the documented form and the log gets the cause.
            log.exception("A request failed", method=scope["method"], path=scope["path"])
            if not started:
                await self._answer(
                    PoolmusterError("Something went wrong here; the log knows what."), receive, send_with_headers
                )

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
