"""Why a handshake failed, told from what OpenSSL and the network raise."""

import ssl

import pytest

from poolmuster.http.limits import HandshakeFailure
from poolmuster.http.tls_errors import failure_of


def openssl(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "as OpenSSL puts it")
    error.reason = reason  # type: ignore[assignment]  # it may be missing
    return error


def certificate(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, "as OpenSSL puts it"
    return error


@pytest.mark.parametrize(
    ("error", "reason", "says"),
    [
        (openssl("HTTP_REQUEST"), "no_tls", "plain HTTP on the TLS port"),
        (openssl("HTTPS_PROXY_REQUEST"), "no_tls", "plain HTTP on the TLS port"),
        (openssl("WRONG_VERSION_NUMBER"), "no_tls", "no TLS"),
        (openssl("UNSUPPORTED_PROTOCOL"), "no_shared_version", "TLS 1.2"),
        (openssl("NO_SHARED_CIPHER"), "no_shared_version", "TLS 1.2"),
        (openssl("TLSV1_ALERT_PROTOCOL_VERSION"), "no_shared_version", "TLS 1.2"),
        (openssl("TLSV1_ALERT_UNKNOWN_CA"), "refused_by_client", "unknown ca"),
        (openssl("SSLV3_ALERT_CERTIFICATE_EXPIRED"), "refused_by_client", "certificate expired"),
        (openssl("TLSV1_ALERT_INTERNAL_ERROR"), "other", "the client broke off (internal error)"),
        (openssl("SOME_NEW_REASON"), "other", "some new reason"),
        (openssl(None), "other", "does not say"),
        (certificate(10), "expired_certificate", "has expired"),
        (certificate(9), "not_yet_valid", "not valid yet"),
        (certificate(19), "unknown_authority", "as OpenSSL puts it"),
        (certificate(20), "unknown_authority", "as OpenSSL puts it"),
        (certificate(26), "bad_certificate", "as OpenSSL puts it"),
        (ConnectionResetError(), "gone", "went away"),
        (TimeoutError(), "timeout", "in time"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), "other", "UnicodeDecodeError"),
    ],
)
def test_each_has_its_reason_and_words(error: Exception, reason: str, says: str) -> None:
    failure = failure_of(error)
    assert failure.reason is HandshakeFailure(reason)
    assert says in failure.text
