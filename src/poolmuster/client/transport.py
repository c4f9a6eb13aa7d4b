"""The HTTP session all calls go through: timeouts, proxies, trust. No redirects, no cookies, no netrc."""

import os
import ssl
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from poolmuster import __version__
from poolmuster.client.settings import ClientSettings
from poolmuster.model.errors import InvalidInput

USER_AGENT = f"poolmuster/{__version__}"


def open_session(settings: ClientSettings) -> aiohttp.ClientSession:
    """A session for ``settings``; close it. Raises `InvalidInput` if ``SSL_CERT_FILE`` cannot be used."""
    needs_tls = any(url.startswith("https:") for url in settings.urls)
    connector = aiohttp.TCPConnector(limit=0, ssl=_tls_context() if needs_tls else True)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": USER_AGENT},
        timeout=call_timeout(settings, settings.request_timeout_s),
        trust_env=False,  # it would send what it finds in ~/.netrc; `proxy_of` reads the proxy variables
    )


def call_timeout(settings: ClientSettings, total_s: float | None) -> aiohttp.ClientTimeout:
    """Timeouts of one call, ``None`` for one that has no end of its own."""
    connect_s = settings.connect_timeout_s if total_s is None else min(settings.connect_timeout_s, total_s)
    return aiohttp.ClientTimeout(total=total_s, connect=connect_s, sock_connect=connect_s)


def proxy_of(url: str) -> str | None:
    """The proxy for ``url`` by ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``. Never one for this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host == "localhost" or _is_loopback(host) or proxy_bypass(parts.netloc):
        return None
    proxy = getproxies().get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy or None


def reason_of(error: Exception) -> str:
    """Why a call got no whole answer, in a few words for people."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not accepted ({error.certificate_error})"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        if number and number > 0:
            return os.strerror(number)
        return error.os_error.strerror or str(error.os_error) or "no connection"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionResetError):
        return "the connection was cut"
    return str(error) or type(error).__name__


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _tls_context() -> ssl.SSLContext:
    # OpenSSL itself keeps silent about a file that is not there, and then trusts nobody.
    file = os.environ.get("SSL_CERT_FILE")
    if file:
        try:
            return ssl.create_default_context(cafile=file)
        except OSError as error:
            raise InvalidInput(f"SSL_CERT_FILE: {file} cannot be used: {error.strerror or error}.") from error
    return ssl.create_default_context()
