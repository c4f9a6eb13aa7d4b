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

    def __init_subclass__(cls, *, status: int | None = None, type: str | None = None, title: str | None = None) -> None:  # noqa: A002
        cls.status = cls.status if status is None else status
        cls.type = cls.type if type is None else f"urn:poolmuster:{type}"
        cls.title = cls.title if title is None else title

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class InvalidInput(PoolmusterError, status=400, type="invalid", title="Invalid input"):
    """The input breaks a rule; ``faults`` names each place. Nothing was changed."""

    def __init__(self, detail: str, faults: tuple[FieldError, ...] = ()) -> None:
        super().__init__(detail)
        self.field_errors = faults

    @property
    def line(self) -> str:
        """``detail`` and every fault, for where there is room for one line."""
        return self.detail + "".join(f" {fault.pointer}: {fault.detail}." for fault in self.field_errors)


class UnknownParameter(InvalidInput, type="unknown-parameter", title="Unknown parameter"):
    """A query parameter that this path does not know."""


class Unauthenticated(PoolmusterError, status=401, type="unauthenticated", title="Unauthenticated"):
    """No credentials, or none that are known here. Which, and why, the caller is not told."""

    def __init__(self, detail: str, *, presented: bool = True, by_connection: bool = False) -> None:
        super().__init__(detail)
        self.presented = presented
        """Whether anything was presented at all: only then is it called invalid (RFC 6750, 3.1)."""
        self.by_connection = by_connection
        """Whether it was the connection's certificate: a new connection may fare better, this one never will."""


class Forbidden(PoolmusterError, status=403, type="forbidden", title="Forbidden"):
    """The caller is known, and may not do this."""


class MisdirectedHost(PoolmusterError, status=421, type="misdirected-host", title="Not a name of this service"):
    """The ``Host`` header names something this anonymous loopback service does not answer to."""


class NotFound(PoolmusterError, status=404, type="not-found", title="Not found"):
    """No such path, or a pool that is neither listed nor remembered."""


class MethodNotAllowed(PoolmusterError, status=405, type="method-not-allowed", title="Method not allowed"):
    """The path exists, the method does not; ``allow`` lists those that do."""

    def __init__(self, detail: str, allow: tuple[str, ...]) -> None:
        super().__init__(detail)
        self.allow = allow


class NotAcceptable(PoolmusterError, status=406, type="not-acceptable", title="Not acceptable"):
    """None of the media types in ``Accept`` can be produced."""


class RequestTimeout(PoolmusterError, status=408, type="request-timeout", title="Request timeout"):
    """The head or the body of a request did not arrive in time."""


class RelayDeregistered(PoolmusterError, status=409, type="relay-left", title="This relay has left"):
    """This ``relay_id`` deregistered the pool; a late heartbeat must not bring it back."""


class BodyTooLarge(PoolmusterError, status=413, type="body-too-large", title="Body too large"):
    """The body is over the limit, which was noticed before it was read whole."""


class UnsupportedMediaType(PoolmusterError, status=415, type="unsupported-media-type", title="Unsupported media type"):
    """The content type is not JSON, or the body has a content encoding."""


class HeadersTooLarge(PoolmusterError, status=431, type="head-too-large", title="Request head too large"):
    """The head of a request is over the limit, which was noticed before it was read whole."""


class LimitReached(PoolmusterError, status=429, type="limit-reached", title="Limit reached"):
    """A bound of this instance is reached; renewals are unaffected."""

    def __init__(self, detail: str, retry_after_s: int = 5) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class Unavailable(PoolmusterError, status=503, type="unavailable", title="Unavailable"):
    """The answer cannot be given now. After a write the effect is unknown: it may have happened."""

    def __init__(self, detail: str, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
