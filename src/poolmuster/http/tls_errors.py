"""Why a handshake failed, in words for the log: asyncio swallows it, and OpenSSL's own words are for its authors."""

import ssl
from typing import NamedTuple

from poolmuster.http.limits import HandshakeFailure

HTTP_REASONS = frozenset({"HTTP_REQUEST", "HTTPS_PROXY_REQUEST"})
NO_TLS_REASONS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_TOO_SMALL", "BAD_RECORD_TYPE"})
VERSION_REASONS = frozenset({"UNSUPPORTED_PROTOCOL", "NO_SHARED_CIPHER", "NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW"})
VERSION_ALERTS = frozenset({"PROTOCOL_VERSION", "INSUFFICIENT_SECURITY"})
CERTIFICATE_ALERTS = frozenset(
    {"UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED", "CERTIFICATE_UNKNOWN", "CERTIFICATE_REVOKED"}
    | {"UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED"}
)

# X509_V_ERR_... of OpenSSL's x509_vfy.h, which `ssl` gives as numbers only.
NOT_YET_VALID = 9
HAS_EXPIRED = 10
NO_ISSUER = frozenset({2, 18, 19, 20, 21, 27})


class Failure(NamedTuple):
    """The reason for the metric, and what to say of it."""

    reason: HandshakeFailure
    text: str


TIMED_OUT = Failure(HandshakeFailure.TIMEOUT, "the client did not end its handshake in time")
GONE = Failure(
    HandshakeFailure.GONE,
    "the client went away in the middle of its handshake, as one may that does not accept this server's certificate",
)


def failure_of(error: BaseException) -> Failure:
    """What ``error``, raised by a handshake on the server's side, says."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error)
    if isinstance(error, ssl.SSLError):
        return _of_reason(error.reason or "")
    if isinstance(error, ConnectionError):
        return GONE
    return Failure(HandshakeFailure.OTHER, type(error).__name__)


def _of_certificate(error: ssl.SSLCertVerificationError) -> Failure:
    match error.verify_code:
        case int(code) if code in NO_ISSUER:
            said = f"no authority known here vouches for the client's certificate ({error.verify_message})"
            return Failure(HandshakeFailure.UNKNOWN_AUTHORITY, said)
        case int(code) if code == HAS_EXPIRED:
            said = "the client's certificate, or one in its chain, has expired"
            return Failure(HandshakeFailure.EXPIRED_CERTIFICATE, said)
        case int(code) if code == NOT_YET_VALID:
            said = "the client's certificate, or one in its chain, is not valid yet"
            return Failure(HandshakeFailure.NOT_YET_VALID, said)
    said = f"the client's certificate is not good for this ({error.verify_message})"
    return Failure(HandshakeFailure.BAD_CERTIFICATE, said)


def _of_reason(reason: str) -> Failure:
    if reason in HTTP_REASONS:
        return Failure(HandshakeFailure.NO_TLS, "plain HTTP on the TLS port")
    if reason in NO_TLS_REASONS:
        return Failure(HandshakeFailure.NO_TLS, "what came is no TLS")
    _, of_client, alert = reason.partition("_ALERT_")
    if reason in VERSION_REASONS or alert in VERSION_ALERTS:
        said = "no version of TLS, or no cipher, in common: TLS 1.2 is wanted, and 1.3 where client certificates count"
        return Failure(HandshakeFailure.NO_SHARED_VERSION, said)
    if alert in CERTIFICATE_ALERTS:
        said = f"the client does not accept this server's certificate ({_words(alert)})"
        return Failure(HandshakeFailure.REFUSED_BY_CLIENT, said)
    if of_client:
        return Failure(HandshakeFailure.OTHER, f"the client broke off ({_words(alert)})")
    return Failure(HandshakeFailure.OTHER, _words(reason) or "OpenSSL does not say why")


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")
