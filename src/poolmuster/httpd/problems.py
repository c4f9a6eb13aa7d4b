"""Errors as RFC 9457 problems."""

from http import HTTPStatus

import msgspec

from poolmuster.model.errors import (
    BodyTooLarge,
    InvalidInput,
    LimitReached,
    MethodNotAllowed,
    PoolmusterError,
    Unavailable,
    UnsupportedMediaType,
)
from poolmuster.model.source import Source
from poolmuster.model.wire import Problem

PROBLEM_JSON = b"application/problem+json"

Headers = list[tuple[bytes, bytes]]
NO_HEADERS: Headers = []


def problem_of(error: PoolmusterError, sources: tuple[Source, ...] = ()) -> Problem:
    """The problem document of ``error``."""
    return Problem(
        type=error.type,
        title=error.title,
        status=error.status,
        detail=error.detail,
        errors=error.faults if isinstance(error, InvalidInput) else (),
        sources=sources,
    )


def problem_headers(error: PoolmusterError) -> Headers:
    """The headers that go with ``error`` beside type and length."""
    match error:
        case MethodNotAllowed():
            return [(b"allow", ", ".join(error.allow).encode())]
        case LimitReached() | Unavailable():
            return [(b"retry-after", str(error.retry_after_s).encode())]
        case UnsupportedMediaType():
            return [(b"accept-post", b"application/json"), (b"accept-encoding", b"identity")]
        case BodyTooLarge():
            return [(b"connection", b"close")]
    return []


def problem_answer(error: PoolmusterError, sources: tuple[Source, ...] = ()) -> tuple[int, Headers, bytes]:
    """Status, headers and body that say ``error``."""
    body = msgspec.json.encode(problem_of(error, sources))
    headers = [(b"content-type", PROBLEM_JSON), (b"content-length", str(len(body)).encode()), *problem_headers(error)]
    return error.status, headers, body


def bare_answer(
    status: int, detail: str = "", retry_after_s: int | None = None, headers: Headers = NO_HEADERS
) -> bytes:
    """A whole HTTP/1.1 answer for a connection that never got as far as a request, which then is closed.

    ``headers`` are those that every answer of the service bears. Without ``detail`` it has no body: what does not
    speak HTTP gets no more than a status.
    """
    phrase = HTTPStatus(status).phrase
    lines = [f"HTTP/1.1 {status} {phrase}", "connection: close"]
    body = b""
    if detail:
        kind = {408: "request-timeout", 431: "head-too-large", 503: "unavailable"}[status]
        problem = Problem(type=f"urn:poolmuster:{kind}", title=phrase, status=status, detail=detail)
        body = msgspec.json.encode(problem)
        lines.append(f"content-type: {PROBLEM_JSON.decode()}")
    if retry_after_s is not None:
        lines.append(f"retry-after: {retry_after_s}")
    lines += [f"{name.decode()}: {value.decode()}" for name, value in headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body
