"""One tree of errors, each carrying what an HTTP answer needs: status, stable type, title.

``type`` is an RFC 9457 problem type (a ``urn:poolmuster:`` URN) and never changes once published.
Adapters translate foreign errors into these at the edge and keep the cause (``raise ... from``).
"""

from typing import ClassVar

import msgspec


class FieldError(msgspec.Struct, frozen=True):
    """One thing wrong with an input: ``pointer`` is an RFC 6901 JSON pointer, or a parameter's name."""

    pointer: str
    detail: str


class PoolmusterError(Exception):
    """Root of every error this package raises on purpose."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "urn:poolmuster:internal"
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class InvalidInput(PoolmusterError):
    """The input breaks a rule; ``faults`` names each place. Nothing was changed."""

    status = 400
    type = "urn:poolmuster:invalid"
    title = "Invalid input"

    def __init__(self, detail: str, faults: tuple[FieldError, ...] = ()) -> None:
        super().__init__(detail)
        self.field_errors = faults

    @property
    def line(self) -> str:
        """``detail`` and every fault, for where there is room for one line."""
        return self.detail + "".join(f" {fault.pointer}: {fault.detail}." for fault in self.field_errors)


class UnknownParameter(InvalidInput):
    """A query parameter that this path does not know."""

    type = "urn:poolmuster:unknown-parameter"
    title = "Unknown parameter"


class Unauthenticated(PoolmusterError):
    """No credentials, or none that are known here. Which, and why, the caller is not told."""

    status = 401
    type = "urn:poolmuster:unauthenticated"
    title = "Unauthenticated"

    def __init__(self, detail: str, *, presented: bool = True, by_connection: bool = False) -> None:
        super().__init__(detail)
        self.presented = presented
        """Whether anything was presented at all: only then is it called invalid (RFC 6750, 3.1)."""
        self.by_connection = by_connection
        """Whether it was the connection's certificate: a new connection may fare better, this one never will."""


class Forbidden(PoolmusterError):
    """The caller is known, and may not do this."""

    status = 403
    type = "urn:poolmuster:forbidden"
    title = "Forbidden"


class MisdirectedHost(PoolmusterError):
    """The ``Host`` header names something this anonymous loopback service does not answer to."""

    status = 421
    type = "urn:poolmuster:misdirected-host"
    title = "Not a name of this service"


class NotFound(PoolmusterError):
    """No such path, or a pool that is neither listed nor remembered."""

    status = 404
    type = "urn:poolmuster:not-found"
    title = "Not found"


class MethodNotAllowed(PoolmusterError):
    """The path exists, the method does not; ``allow`` lists those that do."""

    status = 405
    type = "urn:poolmuster:method-not-allowed"
    title = "Method not allowed"

    def __init__(self, detail: str, allow: tuple[str, ...]) -> None:
        super().__init__(detail)
        self.allow = allow


class NotAcceptable(PoolmusterError):
    """None of the media types in ``Accept`` can be produced."""

    status = 406
    type = "urn:poolmuster:not-acceptable"
    title = "Not acceptable"


class RequestTimeout(PoolmusterError):
    """The head or the body of a request did not arrive in time."""

    status = 408
    type = "urn:poolmuster:request-timeout"
    title = "Request timeout"


class RelayDeregistered(PoolmusterError):
    """This ``relay_id`` deregistered the pool; a late heartbeat must not bring it back."""

    status = 409
    type = "urn:poolmuster:relay-left"
    title = "This relay has left"


class BodyTooLarge(PoolmusterError):
    """The body is over the limit, which was noticed before it was read whole."""

    status = 413
    type = "urn:poolmuster:body-too-large"
    title = "Body too large"


class UnsupportedMediaType(PoolmusterError):
    """The content type is not JSON, or the body has a content encoding."""

    status = 415
    type = "urn:poolmuster:unsupported-media-type"
    title = "Unsupported media type"


class HeadersTooLarge(PoolmusterError):
    """The head of a request is over the limit, which was noticed before it was read whole."""

    status = 431
    type = "urn:poolmuster:head-too-large"
    title = "Request head too large"


class LimitReached(PoolmusterError):
    """A bound of this instance is reached; renewals are unaffected."""

    status = 429
    type = "urn:poolmuster:limit-reached"
    title = "Limit reached"

    def __init__(self, detail: str, retry_after_s: int = 5) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class Unavailable(PoolmusterError):
    """The answer cannot be given now. After a write the effect is unknown: it may have happened."""

    status = 503
    type = "urn:poolmuster:unavailable"
    title = "Unavailable"

    def __init__(self, detail: str, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
