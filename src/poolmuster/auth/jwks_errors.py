"""Why keys could not be fetched, in a few words for people."""

import os

import aiohttp


def meaning_of_status(status: int) -> str:
    """What an answer other than 200 says."""
    if 300 <= status < 400:
        return f"answers {status}, and redirects are not followed"
    if status in {401, 403}:
        return f"answers {status}: it wants a token, or another one"
    return f"answers {status}"


def meaning_of_error(error: Exception) -> str:
    """Why there was no answer."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "has no address: its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"has a certificate that is not accepted ({error.certificate_error})"
    if isinstance(error, aiohttp.ClientSSLError):
        return "cannot be spoken to over TLS"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"cannot be connected to: {os.strerror(number) if number and number > 0 else 'no connection'}"
    if isinstance(error, TimeoutError):
        return "does not answer in time"
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionError):
        return "cut the connection"
    return f"cannot be read: {type(error).__name__}"
