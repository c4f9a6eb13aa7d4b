"""What DynamoDB's errors mean: each becomes one reason that tells an operator where to look."""

import msgspec

from poolmuster.model.source import SourceReason

_BY_TYPE = {
    "ProvisionedThroughputExceededException": SourceReason.THROTTLED,
    "ThrottlingException": SourceReason.THROTTLED,
    "RequestLimitExceeded": SourceReason.THROTTLED,
    "AccessDeniedException": SourceReason.ACCESS_DENIED,
    "UnrecognizedClientException": SourceReason.ACCESS_DENIED,
    "IncompleteSignature": SourceReason.ACCESS_DENIED,
    "MissingAuthenticationTokenException": SourceReason.ACCESS_DENIED,
    "InvalidSignatureException": SourceReason.ACCESS_DENIED,
    "ExpiredTokenException": SourceReason.CREDENTIALS_EXPIRED,
    "ExpiredToken": SourceReason.CREDENTIALS_EXPIRED,
    "RequestExpired": SourceReason.CLOCK_SKEW,
    "ResourceNotFoundException": SourceReason.TABLE_MISSING,
}
_SKEW_SIGNS = ("signature expired", "signature not yet current", "is now earlier than", "is now later than")


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


def error_of(status: int, body: bytes, where: str) -> Exception:
    """What an answer other than 200 means. ``where`` names table, region and endpoint."""
    try:
        error = msgspec.json.decode(body, type=_Error)
    except msgspec.DecodeError:
        return Trouble(SourceReason.BAD_ANSWER, f"{where} answered {status} with something that is not an AWS error")
    code = error.type.rpartition("#")[2]
    message = (error.message or error.Message or "").strip()[:300]
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(message)
    reason = _BY_TYPE.get(code, SourceReason.BAD_ANSWER)
    if any(sign in message.lower() for sign in _SKEW_SIGNS):
        reason = SourceReason.CLOCK_SKEW
    hint = " (a wrong region looks the same)" if reason is SourceReason.TABLE_MISSING else ""
    return Trouble(reason, f"{where} answered {status} {code or 'without a type'}: {message}{hint}", code=code)
