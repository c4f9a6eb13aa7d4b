"""The HTTP session of all calls: timeouts, proxies, credentials. No redirects, no cookies, no netrc."""

import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from poolmuster import __version__
from poolmuster.client.credentials import ClientCredentials
from poolmuster.client.settings import ClientSettings
from poolmuster.platform.lease_clock import SystemClock
from poolmuster.ports.clock import Clock

USER_AGENT = f"poolmuster/{__version__}"

log = logging.getLogger("poolmuster.client")


class Session:
    """Makes calls to the instances of one service, each with the client's credentials. Close it."""

    def __init__(self, http: aiohttp.ClientSession, credentials: ClientCredentials) -> None:
        self._http = http
        self.credentials = credentials

    async def request(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
        proxy: str | None,
        body: bytes | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """One call, which begins when the context is entered. Entering raises what aiohttp does."""
        if self.credentials.is_due:
            await self.credentials.refresh()
        if self.credentials.authorization is not None:
            headers = {**headers, "Authorization": self.credentials.authorization}
        # A context of its own for each state of the files: aiohttp reuses a connection under the same context only.
        return self._http.request(
            method,
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            timeout=timeout,
            proxy=proxy,
            ssl=self.credentials.tls,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


def open_session(settings: ClientSettings, clock: Clock | None = None) -> Session:
    """A session for ``settings``; close it. Raises `InvalidInput` for files that cannot be used."""
    credentials = ClientCredentials(settings, clock or SystemClock())
    if settings.token_file is not None:
        _warn_about_clear_text(settings.urls)
    http = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": USER_AGENT},
        timeout=call_timeout(settings, settings.request_timeout_s),
        trust_env=False,  # it would send the content of ~/.netrc; `proxy_of` reads the proxy variables
    )
    return Session(http, credentials)


def call_timeout(settings: ClientSettings, total_s: float | None) -> aiohttp.ClientTimeout:
    """Timeouts of one call; with ``None`` it may last for ever once it is connected."""
    connect_s = settings.connect_timeout_s if total_s is None else min(settings.connect_timeout_s, total_s)
    return aiohttp.ClientTimeout(total=total_s, connect=connect_s, sock_connect=connect_s)


def proxy_of(url: str) -> str | None:
    """The proxy for ``url`` by ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``. None for this machine itself."""
    parts = urlsplit(url)
    if _is_this_machine(parts.hostname or "") or proxy_bypass(parts.netloc):
        return None
    proxy = getproxies().get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy or None


def _warn_about_clear_text(urls: tuple[str, ...]) -> None:
    exposed = [
        url for url in urls if (parts := urlsplit(url)).scheme == "http" and not _is_this_machine(parts.hostname or "")
    ]
    if exposed:
        log.warning(
            "The token goes over the network in the clear, for anyone on the way to read: %s", " ".join(exposed)
        )


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
