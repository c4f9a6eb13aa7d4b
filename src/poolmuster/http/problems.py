"""Errors as RFC 9457 problems."""

from http import HTTPStatus

import msgspec

from poolmuster.model.errors import (
    BodyTooLarge,
    InvalidInput,
    LimitReached,
    MethodNotAllowed,
    PoolmusterError,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
)
from poolmuster.model.schema import Problem
from poolmuster.model.source import SourceInfo

PROBLEM_JSON = b"application/problem+json"

Headers = list[tuple[bytes, bytes]]


def problem_of(error: PoolmusterError, sources: tuple[SourceInfo, ...] = ()) -> Problem:
    """The problem document of ``error``."""
    return Problem(
        type=error.type,
        title=error.title,
        status=error.status,
        detail=error.detail,
        errors=error.field_errors if isinstance(error, InvalidInput) else (),
        sources=sources,
    )


def problem_headers(error: PoolmusterError) -> Headers:
    """The headers that go with ``error`` beside type and length."""
    match error:
        case Unauthenticated():
            # RFC 6750, 3.1: what is wrong is said only to whom something was wrong with, and no more than that.
            invalid = b', error="invalid_token"' if error.presented else b""
            ends = [(b"connection", b"close")] if error.by_connection else []
            return [(b"www-authenticate", b'Bearer realm="poolmuster"' + invalid), *ends]
        case MethodNotAllowed():
            return [(b"allow", ", ".join(error.allow).encode())]
        case LimitReached() | Unavailable():
            return [(b"retry-after", str(error.retry_after_s).encode())]
        case UnsupportedMediaType():
            return [(b"accept-post", b"application/json"), (b"accept-encoding", b"identity")]
        case BodyTooLarge():
            return [(b"connection", b"close")]
    return []


def problem_response(error: PoolmusterError, sources: tuple[SourceInfo, ...] = ()) -> tuple[int, Headers, bytes]:
    """Status, headers and body that say ``error``."""
    body = msgspec.json.encode(problem_of(error, sources))
    headers = [(b"content-type", PROBLEM_JSON), (b"content-length", str(len(body)).encode()), *problem_headers(error)]
    return error.status, headers, body


BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
"""To what does not speak HTTP: it gets no more than a status."""

_HTTPS_SENTENCE = b"This port speaks HTTPS: begin the URL with https://.\n"
HTTPS_WANTED = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_HTTPS_SENTENCE), _HTTPS_SENTENCE)
)
"""The answer to a plain HTTP request on a port with TLS."""


def raw_response(error: PoolmusterError, more_headers: Headers) -> bytes:
    """A whole HTTP/1.1 answer for a connection that never got as far as a request, which then is closed.

    ``more_headers`` are those that every answer of the service bears.
    """
    status, headers, body = problem_response(error)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), b"connection: close"]
    lines += [b"%b: %b" % header for header in (*headers, *more_headers)]
    return b"\r\n".join([*lines, b"", b""]) + body
