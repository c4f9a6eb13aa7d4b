"""Why a call got no whole response: its kind for a program, and a few words for people."""

import errno
import os
import ssl
from enum import Enum, auto

import aiohttp

_WRONG_NAME = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_UNKNOWN_AUTHORITY = {2, 18, 19, 20, 21, 24, 27}  # no issuer found, self-signed, no authority, not trusted

_CUT_NUMBERS = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE}
_NOT_TLS = "it does not speak TLS there: its URL begins with http, or this is another port"
_TLS_REASONS = (
    ("WRONG_VERSION_NUMBER", _NOT_TLS),
    ("RECORD_LAYER_FAILURE", _NOT_TLS),
    ("PACKET_LENGTH_TOO_LONG", _NOT_TLS),
    ("CERTIFICATE_REQUIRED", "it wants a client certificate"),
    ("ALERT_UNKNOWN_CA", "it does not know the authority of the client certificate"),
    ("ALERT_CERTIFICATE_EXPIRED", "the client certificate has expired"),
    ("ALERT_CERTIFICATE_REVOKED", "the client certificate is revoked"),
    ("ALERT_BAD_CERTIFICATE", "it does not accept the client certificate"),
    ("ALERT_CERTIFICATE_UNKNOWN", "it does not accept the client certificate"),
    ("ALERT_UNSUPPORTED_CERTIFICATE", "it does not accept the client certificate"),
    ("ALERT_HANDSHAKE_FAILURE", "it broke off the handshake of TLS; it may want a client certificate"),
    ("PROTOCOL_VERSION", "it speaks no version of TLS from 1.2 on"),
    ("UNSUPPORTED_PROTOCOL", "it speaks no version of TLS from 1.2 on"),
)
"""The meaning of an error of OpenSSL, by a part of its name."""

_TLS_RECORD = r"b'\x15\x03"
"""An alert of TLS in the message of a parser that expected HTTP."""


class NetFailure(Enum):
    """The kinds of failed calls."""

    DNS = auto()  # the host has no address
    REFUSED = auto()  # nothing listens at the address: the machine answered so
    NO_CONNECTION = auto()  # any other failure to connect
    TIMEOUT = auto()
    CERTIFICATE = auto()  # the server's certificate is not accepted here
    TLS = auto()  # any other failure of TLS
    CUT = auto()  # the connection ended before the response did
    PROTOCOL = auto()  # the response is not HTTP as it should be, or a proxy refused
    OTHER = auto()


def failure_of(error: BaseException) -> NetFailure:
    """The kind of ``error``, which a call of aiohttp raised."""
    if (fault := _tls_fault(error)) is not None:
        return NetFailure.CERTIFICATE if isinstance(fault, ssl.SSLCertVerificationError) else NetFailure.TLS
    if _is_cut(error):
        return NetFailure.CUT
    match error:
        case aiohttp.ClientConnectorDNSError():
            return NetFailure.DNS
        case aiohttp.ClientConnectorError():
            refused = error.os_error.errno == errno.ECONNREFUSED
            return NetFailure.REFUSED if refused else NetFailure.NO_CONNECTION
        case TimeoutError():
            return NetFailure.TIMEOUT
        case aiohttp.ClientResponseError():
            return NetFailure.PROTOCOL
    return NetFailure.OTHER


def reason_of(error: BaseException, url: str = "") -> str:
    """Why a call to ``url`` got no whole response, in words."""
    match failure_of(error):
        case NetFailure.CERTIFICATE | NetFailure.TLS:
            return _tls_reason(error)
        case NetFailure.CUT:
            return "the connection was cut" + _cut_hint(url)
        case NetFailure.DNS:
            return f"its name cannot be resolved ({_reason_of_kind(error)})"
        case NetFailure.TIMEOUT:
            return "it does not answer in time"
    return _reason_of_kind(error)


def _reason_of_kind(error: BaseException) -> str:
    """By its kind alone: an error's own words may hold a URL, and with it a proxy's password."""
    match error:
        case aiohttp.ClientConnectorError(os_error=cause):
            number = cause.errno or 0
            return os.strerror(number) if number > 0 else cause.strerror or str(cause) or "no connection"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered {error.status}"
        case aiohttp.ClientResponseError():
            return "it speaks TLS there: its URL begins with https" if _TLS_RECORD in error.message else error.message
        case aiohttp.InvalidURL():
            return "the URL of the proxy, or its own, cannot be used"
        case aiohttp.ClientError():
            return type(error).__name__
    return str(error) or type(error).__name__


def _tls_fault(error: BaseException) -> ssl.SSLError | None:
    """The error of TLS that is behind ``error``."""
    # aiohttp's own are errors of TLS by their class only: the facts stand in the one that they wrap.
    for candidate in (getattr(error, "certificate_error", None), getattr(error, "os_error", None), error.__cause__):
        if isinstance(candidate, ssl.SSLError):
            return candidate
    return None


def _tls_reason(error: BaseException) -> str:
    fault = _tls_fault(error)
    assert fault is not None
    if isinstance(fault, ssl.SSLCertVerificationError):
        return _verification_reason(fault)
    name = getattr(fault, "reason", None) or ""  # which an error that asyncio makes does not have
    if (reason := next((text for part, text in _TLS_REASONS if part in name), None)) is not None:
        return reason
    return f"TLS failed ({name.lower().replace('_', ' ') or fault.strerror or 'without a reason'})"


def _verification_reason(fault: ssl.SSLCertVerificationError) -> str:
    message = fault.verify_message.rstrip(".")
    if fault.verify_code in _WRONG_NAME:
        return f"its certificate is for another name ({message})"
    if fault.verify_code in _UNKNOWN_AUTHORITY:
        others = "ca_cert (--ca-cert, or --auth-oidc-ca-cert for an issuer's keys) names others"
        return f"its certificate is by an authority that is not trusted here ({message}); {others}"
    return f"its certificate is not accepted ({message})"


def _is_cut(error: BaseException) -> bool:
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    # asyncio's own error, for a peer that leaves in the middle of a handshake, has no number.
    return isinstance(inner, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionResetError) or (
        isinstance(inner, OSError) and inner.errno in _CUT_NUMBERS
    )


def _cut_hint(url: str) -> str:
    """The likely cause: some services close the connection without a word when a request is not what they expect."""
    if url.startswith("https:"):
        return " (a service that wants another client certificate, or one at all, may do so)"
    if url.startswith("http:"):
        return " (a service that speaks TLS would do so: is it https?)"
    return ""
