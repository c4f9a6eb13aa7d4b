"""What DynamoDB's errors mean: each becomes one reason that tells an operator where to look."""

import re

import msgspec

from poolmuster.model.source import SourceReason

_BY_TYPE = {
    "ProvisionedThroughputExceededException": SourceReason.THROTTLED,
    "ThrottlingException": SourceReason.THROTTLED,
    "Throttling": SourceReason.THROTTLED,
    "RequestLimitExceeded": SourceReason.THROTTLED,
    "RequestLimitExceededException": SourceReason.THROTTLED,
    "AccessDeniedException": SourceReason.ACCESS_DENIED,
    "UnrecognizedClientException": SourceReason.ACCESS_DENIED,
    "InvalidClientTokenId": SourceReason.ACCESS_DENIED,
    "IncompleteSignature": SourceReason.ACCESS_DENIED,
    "IncompleteSignatureException": SourceReason.ACCESS_DENIED,
    "MissingAuthenticationToken": SourceReason.ACCESS_DENIED,
    "MissingAuthenticationTokenException": SourceReason.ACCESS_DENIED,
    "NotAuthorized": SourceReason.ACCESS_DENIED,
    "OptInRequired": SourceReason.ACCESS_DENIED,
    "InvalidSignatureException": SourceReason.ACCESS_DENIED,
    "ExpiredTokenException": SourceReason.CREDENTIALS_EXPIRED,
    "ExpiredToken": SourceReason.CREDENTIALS_EXPIRED,
    "RequestExpired": SourceReason.CLOCK_SKEW,
    "RequestTimeTooSkewed": SourceReason.CLOCK_SKEW,
    "ResourceNotFoundException": SourceReason.TABLE_MISSING,
    "InternalServerError": SourceReason.UNREACHABLE,
    "InternalFailure": SourceReason.UNREACHABLE,
    "ServiceUnavailable": SourceReason.UNREACHABLE,
    "ServiceUnavailableException": SourceReason.UNREACHABLE,
}
ROTATED = frozenset({"UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException"})
"""What keys are refused with that were replaced by others: it is worth looking whether there are others."""

_SKEW_SIGNS = ("signature expired", "signature not yet current", "is now earlier than", "is still later than")
_EXPIRED_SIGN = "security token included in the request is expired"
_ARN = re.compile(r"\barn:[\w-]+:[^\s\"',;)]*")
MESSAGE_CHARACTERS = 300
SERVER_ERROR = 500


class StoreError(Exception):
    """A call that did not succeed: its reason, and one line for people, without secrets.

    ``detail`` is for operators: the log and the command line. ``shown`` is for whoever may read the list, and does not
    say whose account and which role it is.
    """

    def __init__(self, reason: SourceReason, detail: str, *, code: str = "", shown: str | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.code = code
        self.shown = detail if shown is None else shown

    def with_detail(self, more: str = "") -> "StoreError":
        """The same, never raised yet, with ``more`` to be said about it."""
        more = more and f"; {more}"
        return StoreError(self.reason, self.detail + more, code=self.code, shown=self.shown + more)


class ConditionFailed(Exception):
    """The condition of a put did not hold; nothing was written."""


class _Error(msgspec.Struct):
    type: str = msgspec.field(name="__type", default="")
    message: str | None = None
    Message: str | None = None


def error_of(status: int, body: bytes, where: str) -> StoreError | ConditionFailed:
    """What an answer other than 200 means. ``where`` names table, region and endpoint."""
    try:
        error = msgspec.json.decode(body, type=_Error)
    except msgspec.DecodeError:
        return StoreError(_by_status(status), f"{where} answered {status} with something that is not an AWS error")
    return meaning_of(status, error.type.rpartition("#")[2], error.message or error.Message or "", where)


def meaning_of(status: int, code: str, text: str, where: str) -> StoreError | ConditionFailed:
    """What an error means by its ``code``, as in ``ResourceNotFoundException``, and what AWS says to it."""
    message = _first_words(text)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(message)
    reason = _BY_TYPE.get(code) or _by_status(status)
    if any(sign in message.lower() for sign in _SKEW_SIGNS):
        reason = SourceReason.CLOCK_SKEW
    elif _EXPIRED_SIGN in message.lower():
        reason = SourceReason.CREDENTIALS_EXPIRED
    hint = " (a wrong region looks the same)" if reason is SourceReason.TABLE_MISSING else ""
    kind = code or "an error without a type"
    detail, shown = (
        f"{where} answered {status} {': '.join(part for part in (kind, said) if part)}{hint}"
        for said in (message, _ARN.sub("(an ARN)", message))
    )
    return StoreError(reason, detail, code=code, shown=shown)


def _by_status(status: int) -> SourceReason:
    """What an answer means of which only the status says anything.

    A table that is there but fails, and a proxy or load balancer that cannot reach it, come to the same: it cannot be
    reached right now, and asking again may help.
    """
    return SourceReason.UNREACHABLE if status >= SERVER_ERROR else SourceReason.BAD_ANSWER


def _first_words(message: str) -> str:
    """The line that says what is wrong.

    Where a signature does not match, AWS goes on to repeat the request that it would have signed, and with it the
    session token.
    """
    line = message.strip().partition("\n")[0].partition("The Canonical String")[0]
    return " ".join(line.split())[:MESSAGE_CHARACTERS]
