"""What DynamoDB's errors mean: each has one reason, by which an operator knows where to look."""

import re

import msgspec

from poolmuster.model.source import SourceReason
from poolmuster.sources.polled.table import StoreError

_REASONS = {
    "ProvisionedThroughputExceeded": SourceReason.THROTTLED,
    "Throttling": SourceReason.THROTTLED,
    "RequestLimitExceeded": SourceReason.THROTTLED,
    "AccessDenied": SourceReason.ACCESS_DENIED,
    "UnrecognizedClient": SourceReason.ACCESS_DENIED,
    "InvalidClientTokenId": SourceReason.ACCESS_DENIED,
    "IncompleteSignature": SourceReason.ACCESS_DENIED,
    "MissingAuthenticationToken": SourceReason.ACCESS_DENIED,
    "NotAuthorized": SourceReason.ACCESS_DENIED,
    "OptInRequired": SourceReason.ACCESS_DENIED,
    "InvalidSignature": SourceReason.ACCESS_DENIED,
    "ExpiredToken": SourceReason.CREDENTIALS_EXPIRED,
    "RequestExpired": SourceReason.CLOCK_SKEW,
    "RequestTimeTooSkewed": SourceReason.CLOCK_SKEW,
    "ResourceNotFound": SourceReason.TABLE_MISSING,
    "InternalServerError": SourceReason.UNREACHABLE,
    "InternalFailure": SourceReason.UNREACHABLE,
    "ServiceUnavailable": SourceReason.UNREACHABLE,
}
"""By AWS's code, which may also end in ``Exception``."""

ROTATED = frozenset({"UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException"})
"""Codes by which keys are refused that were replaced: there may be new ones."""

_SKEW_SIGNS = ("signature expired", "signature not yet current", "is now earlier than", "is still later than")
_EXPIRED_SIGN = "security token included in the request is expired"
_ARN = re.compile(r"\barn:[\w-]+:[^\s\"',;)]*")
MESSAGE_CHARACTERS = 300
SERVER_ERROR = 500


class ConditionFailed(Exception):
    """The condition of a put did not hold; nothing was written."""


class _Error(msgspec.Struct):
    type: str = msgspec.field(name="__type", default="")
    message: str | None = None
    Message: str | None = None


def error_of(status: int, body: bytes, where: str) -> StoreError | ConditionFailed:
    """The error of a response other than 200. ``where`` names table, region and endpoint."""
    try:
        error = msgspec.json.decode(body, type=_Error)
    except msgspec.DecodeError:
        return StoreError(_by_status(status), f"{where} answered {status} with something that is not an AWS error")
    return meaning_of(status, error.type.rpartition("#")[2], error.message or error.Message or "", where)


def meaning_of(status: int, code: str, text: str, where: str) -> StoreError | ConditionFailed:
    """The error with AWS's ``code``, such as ``ResourceNotFoundException``, and its message."""
    message = _first_line(text)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(message)
    reason = _REASONS.get(code.removesuffix("Exception")) or _by_status(status)
    if any(sign in message.lower() for sign in _SKEW_SIGNS):
        reason = SourceReason.CLOCK_SKEW
    elif _EXPIRED_SIGN in message.lower():
        reason = SourceReason.CREDENTIALS_EXPIRED
    hint = " (a wrong region looks the same)" if reason is SourceReason.TABLE_MISSING else ""
    kind = code or "an error without a type"
    detail, shown = (
        f"{where} answered {status} {': '.join(part for part in (kind, each) if part)}{hint}"
        for each in (message, _ARN.sub("(an ARN)", message))
    )
    return StoreError(reason, detail, code=code, shown=shown)


def _by_status(status: int) -> SourceReason:
    """The reason of an error whose code is unknown.

    A table that fails and a proxy that cannot reach it are the same here: a retry may help.
    """
    return SourceReason.UNREACHABLE if status >= SERVER_ERROR else SourceReason.BAD_ANSWER


def _first_line(message: str) -> str:
    """The first line. Where a signature does not match, the next ones repeat the request, session token included."""
    line = message.strip().partition("\n")[0].partition("The Canonical String")[0]
    return " ".join(line.split())[:MESSAGE_CHARACTERS]
