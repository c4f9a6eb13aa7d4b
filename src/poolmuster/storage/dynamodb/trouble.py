"""What DynamoDB's errors mean: each becomes one reason that tells an operator where to look."""

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
    "ServiceUnavailable": SourceReason.UNREACHABLE,
    "ServiceUnavailableException": SourceReason.UNREACHABLE,
}
_SKEW_SIGNS = ("signature expired", "signature not yet current", "is now earlier than", "is still later than")
_EXPIRED_SIGN = "security token included in the request is expired"
_GATEWAY_STATUSES = (502, 503, 504)
MESSAGE_CHARACTERS = 300


class Trouble(Exception):
    """A call that did not succeed: its reason, and one line for people, without secrets."""

    def __init__(self, reason: SourceReason, detail: str, *, code: str = "") -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.code = code


class ConditionFailed(Exception):
    """The condition of a put did not hold; nothing was written."""


class _Error(msgspec.Struct):
    type: str = msgspec.field(name="__type", default="")
    message: str | None = None
    Message: str | None = None


def error_of(status: int, body: bytes, where: str) -> Trouble | ConditionFailed:
    """What an answer other than 200 means. ``where`` names table, region and endpoint."""
    try:
        error = msgspec.json.decode(body, type=_Error)
    except msgspec.DecodeError:
        # A proxy or load balancer that cannot reach the table speaks for itself.
        reason = SourceReason.UNREACHABLE if status in _GATEWAY_STATUSES else SourceReason.BAD_ANSWER
        return Trouble(reason, f"{where} answered {status} with something that is not an AWS error")
    return meaning_of(status, error.type.rpartition("#")[2], error.message or error.Message or "", where)


def meaning_of(status: int, code: str, text: str, where: str) -> Trouble | ConditionFailed:
    """What an error means by its ``code``, as in ``ResourceNotFoundException``, and what AWS says to it."""
    message = _first_words(text)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(message)
    reason = _BY_TYPE.get(code, SourceReason.BAD_ANSWER)
    if any(sign in message.lower() for sign in _SKEW_SIGNS):
        reason = SourceReason.CLOCK_SKEW
    elif _EXPIRED_SIGN in message.lower():
        reason = SourceReason.CREDENTIALS_EXPIRED
    hint = " (a wrong region looks the same)" if reason is SourceReason.TABLE_MISSING else ""
    said = ": ".join(part for part in (code or "an error without a type", message) if part)
    return Trouble(reason, f"{where} answered {status} {said}{hint}", code=code)


def _first_words(message: str) -> str:
    """The line that says what is wrong.

    Where a signature does not match, AWS goes on to repeat the request that it would have signed, and with it the
    session token.
    """
    line = message.strip().partition("\n")[0].partition("The Canonical String")[0]
    return " ".join(line.split())[:MESSAGE_CHARACTERS]
