"""Errors of a call: those of the client itself, and those that the service's problem responses stand for."""

import json
from collections.abc import Mapping
from typing import Any

from poolmuster.client.responses import SourceReport, read_sources
from poolmuster.model.errors import (
    BodyTooLarge,
    FieldError,
    Forbidden,
    InvalidInput,
    LimitReached,
    MethodNotAllowed,
    MisdirectedHost,
    NotAcceptable,
    NotFound,
    PoolmusterError,
    RelayDeregistered,
    RequestTimeout,
    Unauthenticated,
    Unavailable,
    UnknownParameter,
    UnsupportedMediaType,
)

RETRY_AFTER_LIMIT_S = 60


class Unreachable(Unavailable):
    """No whole response came: no connection, a timeout, a cut. After a write the effect is unknown."""


class NotReady(Unavailable):
    """The service answered 503; ``sources`` are those that it waits for. After a write the effect is unknown."""

    def __init__(self, detail: str, retry_after_s: int = 1, sources: tuple[SourceReport, ...] = ()) -> None:
        super().__init__(detail, retry_after_s)
        self.sources = sources


class InvalidResponse(PoolmusterError, status=502, type="bad-answer", title="Not an answer of this service"):
    """The response is not this service's: another program listens there, or a proxy answered in its place."""


class UnexpectedStatus(PoolmusterError):
    """An error response of a kind that this version does not know; ``http_status`` is its status."""

    def __init__(self, detail: str, http_status: int) -> None:
        super().__init__(detail)
        self.http_status = http_status


HTTP_SERVER_ERROR = 500


def may_be_answered_elsewhere(error: PoolmusterError) -> bool:
    """Whether another instance may answer instead: no response came, or none of the service's own.

    A proxy before an instance that is down answers ``502`` or ``504``, or with a page of its own.
    """
    if isinstance(error, UnexpectedStatus):
        return error.http_status >= HTTP_SERVER_ERROR
    return isinstance(error, Unavailable | InvalidResponse)


_PLAIN = (
    Unauthenticated,
    Forbidden,
    MisdirectedHost,
    NotFound,
    NotAcceptable,
    RequestTimeout,
    RelayDeregistered,
    BodyTooLarge,
    UnsupportedMediaType,
)


def error_of(url: str, status: int, headers: Mapping[str, str], body: bytes) -> PoolmusterError:
    """The error that a response of 400 or more stands for, by its problem type, or else by its status."""
    problem = _problem(body)
    detail = problem.get("detail") or problem.get("title")
    if not isinstance(detail, str):
        detail = f"{url} answered {status}."
    kind = problem.get("type")

    def means(error: type[PoolmusterError]) -> bool:
        return kind == error.type if isinstance(kind, str) else status == error.status

    if means(UnknownParameter) or means(InvalidInput):
        return (UnknownParameter if kind == UnknownParameter.type else InvalidInput)(detail, _field_errors(problem))
    if means(LimitReached):
        return LimitReached(detail, retry_after_s(headers, LimitReached("").retry_after_s))
    if means(Unavailable) or status == Unavailable.status:
        return NotReady(detail, retry_after_s(headers, 1), read_sources(problem.get("sources")))
    if means(MethodNotAllowed):
        return MethodNotAllowed(detail, tuple(headers.get("Allow", "").replace(",", " ").split()))
    return next((plain(detail) for plain in _PLAIN if means(plain)), None) or UnexpectedStatus(detail, status)


def retry_after_s(headers: Mapping[str, str], default_s: int) -> int:
    """Whole seconds of ``Retry-After``, within reason. Dates are not read: they would need two clocks to agree."""
    text = headers.get("Retry-After", "").strip()
    return min(int(text), RETRY_AFTER_LIMIT_S) if text.isascii() and text.isdecimal() and len(text) < 10 else default_s


def _problem(body: bytes) -> dict[str, Any]:
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}


def _field_errors(problem: dict[str, Any]) -> tuple[FieldError, ...]:
    errors = problem.get("errors")
    return tuple(
        FieldError(str(item.get("pointer", "")), str(item.get("detail", "")))
        for item in (errors if isinstance(errors, list) else ())
        if isinstance(item, dict)
    )
