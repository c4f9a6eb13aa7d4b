"""The reasons of failed TLS handshakes, in words for the log: OpenSSL's own are for its authors."""

import ssl
from typing import NamedTuple

from poolmuster.http.limits import HandshakeFailure


class Failure(NamedTuple):
    """``reason`` is for the metric, ``text`` for the log."""

    reason: HandshakeFailure
    text: str


TIMED_OUT = Failure(HandshakeFailure.TIMEOUT, "the client did not end its handshake in time")
GONE = Failure(
    HandshakeFailure.GONE,
    "the client went away in the middle of its handshake, as one may that does not accept this server's certificate",
)
PLAIN_HTTP = Failure(HandshakeFailure.NO_TLS, "plain HTTP on the TLS port")
NO_TLS = Failure(HandshakeFailure.NO_TLS, "what came is no TLS")
NO_SHARED_VERSION = Failure(
    HandshakeFailure.NO_SHARED_VERSION,
    "no version of TLS, or no cipher, in common: TLS 1.2 is wanted, and 1.3 where client certificates count",
)

REASONS = (
    dict.fromkeys(("HTTP_REQUEST", "HTTPS_PROXY_REQUEST"), PLAIN_HTTP)
    | dict.fromkeys(("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_TOO_SMALL", "BAD_RECORD_TYPE"), NO_TLS)
    | dict.fromkeys(("UNSUPPORTED_PROTOCOL", "NO_SHARED_CIPHER"), NO_SHARED_VERSION)
    | dict.fromkeys(("NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW"), NO_SHARED_VERSION)
)
"""By OpenSSL's reason."""

VERSION_ALERTS = frozenset({"PROTOCOL_VERSION", "INSUFFICIENT_SECURITY"})
CERTIFICATE_ALERTS = frozenset(
    {"UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED", "CERTIFICATE_UNKNOWN", "CERTIFICATE_REVOKED"}
    | {"UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED"}
)

# X509_V_ERR_... of OpenSSL's x509_vfy.h, which `ssl` gives as numbers only.
NOT_YET_VALID = 9
HAS_EXPIRED = 10
NO_ISSUER = frozenset({2, 18, 19, 20, 21, 27})


def failure_of(error: BaseException) -> Failure:
    """The failure that ``error``, raised by a handshake on the server's side, stands for."""
    match error:
        case TimeoutError():
            return TIMED_OUT
        case ssl.SSLCertVerificationError():
            return _of_certificate(error.verify_code, error.verify_message)
        case ssl.SSLError():
            return _of_reason(error.reason or "")
        case ConnectionError():
            return GONE
    return Failure(HandshakeFailure.OTHER, type(error).__name__)


def _of_certificate(code: int, message: str) -> Failure:
    if code in NO_ISSUER:
        text = f"no authority known here vouches for the client's certificate ({message})"
        return Failure(HandshakeFailure.UNKNOWN_AUTHORITY, text)
    if code == HAS_EXPIRED:
        text = "the client's certificate, or one in its chain, has expired"
        return Failure(HandshakeFailure.EXPIRED_CERTIFICATE, text)
    if code == NOT_YET_VALID:
        text = "the client's certificate, or one in its chain, is not valid yet"
        return Failure(HandshakeFailure.NOT_YET_VALID, text)
    return Failure(HandshakeFailure.BAD_CERTIFICATE, f"the client's certificate is not good for this ({message})")


def _of_reason(reason: str) -> Failure:
    if reason in REASONS:
        return REASONS[reason]
    _, of_client, alert = reason.partition("_ALERT_")
    words = (alert or reason).lower().replace("_", " ")
    if alert in VERSION_ALERTS:
        return NO_SHARED_VERSION
    if alert in CERTIFICATE_ALERTS:
        text = f"the client does not accept this server's certificate ({words})"
        return Failure(HandshakeFailure.REFUSED_BY_CLIENT, text)
    text = f"the client broke off ({words})" if of_client else words or "OpenSSL does not say why"
    return Failure(HandshakeFailure.OTHER, text)
