"""Signing keys that are fetched from a URL, again and again, by a task of their own: no authentication waits for it."""

import asyncio
import functools
import ssl
from collections.abc import Callable
from typing import NamedTuple

import aiohttp
import structlog

from poolmuster.auth.jwk import SET_LIMIT_BYTES, parse_signing_keys
from poolmuster.auth.jwks import KeySet, _noop
from poolmuster.auth.jwks_errors import meaning_of_error, meaning_of_status
from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import WatchedFiles, parse_token
from poolmuster.platform.resolver import Resolver
from poolmuster.platform.threads import run_in_daemon_thread
from poolmuster.platform.tls_client import parse_authorities
from poolmuster.ports.clock import Clock

CONNECT_TIMEOUT_S = 1.0
TIMEOUT_S = 2.0
LOOK_INTERVAL_MS = 1_000
"""How often keys that are not known have the issuer asked again, before it is time."""

LEAST_REFRESH_MS = 100
"""What is set lower is taken for this: nobody wants to be asked without a pause."""

ETAG_LIMIT = 256

log = structlog.get_logger("poolmuster.identity")


class _NoKeys(Exception):
    """Why an answer is not a key set."""


class _Answer(NamedTuple):
    content: bytes
    etag: str | None


class UrlKeySet(KeySet):
    """The keys that ``url`` answers with, asked for every ``refresh_ms``.

    ``ca_file`` names the authorities that may vouch for it, in the system's place; ``token_file`` a bearer token that
    is sent to it, and to nobody else. Both are read again before each fetch; the first reading is at once. Raises
    `InvalidInput` where one of them cannot be used. `poolmuster.auth.jwks_source` tells which URLs will do.

    How long others may keep the answer (``Cache-Control``) is not heeded: a key that is withdrawn must stop counting.
    """

    def __init__(
        self,
        issuer: str,
        url: str,
        clock: Clock,
        on_withdrawal: Callable[[], None] = _noop,
        *,
        refresh_ms: int = 1_000,
        ca_file: str | None = None,
        token_file: str | None = None,
    ) -> None:
        super().__init__(issuer, clock, on_withdrawal)
        self.fetches = 0
        self._url = url
        self._refresh_ms = max(refresh_ms, LEAST_REFRESH_MS)
        self._authorities = None if ca_file is None else WatchedFiles([ca_file], parse_authorities)
        self._token = None if token_file is None else WatchedFiles([token_file], parse_token)
        self._asked = asyncio.Event()
        self._good = _Answer(b"", None)

    def request_refresh(self) -> None:
        """Have the next fetch at once, if the last is a second ago."""
        self._asked.set()

    async def run(self) -> None:
        """Fetch. Runs until cancelled."""
        connector = aiohttp.TCPConnector(resolver=Resolver(), limit=1)
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S, connect=CONNECT_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S),
            auto_decompress=False,
            trust_env=False,  # it would send what stands in ~/.netrc
        ) as session:
            while True:
                begun_ms = self._clock.monotonic_ms()
                self._asked.clear()
                await self._fetch(session)
                await self._pause(begun_ms)

    async def _pause(self, begun_ms: int) -> None:
        least_ms = min(LOOK_INTERVAL_MS, self._refresh_ms)
        await self._clock.sleep_ms(begun_ms + least_ms - self._clock.monotonic_ms())
        rest_ms = begun_ms + self._refresh_ms - self._clock.monotonic_ms()
        if rest_ms <= 0 or self._asked.is_set():
            return
        waits = [asyncio.ensure_future(self._clock.sleep_ms(rest_ms)), asyncio.ensure_future(self._asked.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _fetch(self, session: aiohttp.ClientSession) -> None:
        self.fetches += 1
        try:
            await self._read_files()
            answer = await self._ask(session)
            if answer is None or answer.content == self._good.content:
                self._confirm()
                return
            keys = await run_in_daemon_thread("key-set", functools.partial(parse_signing_keys, answer.content))
        except InvalidInput as error:
            self._fail(f"what {self._shown_url()} answers {error.detail}")
        except _NoKeys as error:
            self._fail(f"{self._shown_url()} {error}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._fail(f"{self._shown_url()} {meaning_of_error(error)}")
        else:
            self._good = answer
            self._take(keys)

    async def _read_files(self) -> None:
        for file in (self._authorities, self._token):
            if file is not None and await run_in_daemon_thread("key-trust", file.refresh) and file.problem is not None:
                log.warning("A file that keys are fetched with cannot be used", issuer=self.issuer, why=file.problem)

    async def _ask(self, session: aiohttp.ClientSession) -> _Answer | None:
        """What the URL answers; ``None`` if it is what it was."""
        headers = {"Accept": "application/jwk-set+json, application/json", "Accept-Encoding": "identity"}
        if self._good.etag is not None:
            headers["If-None-Match"] = self._good.etag
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.value}"
        trust = self._authorities.value if self._authorities is not None else _system_trust()
        async with session.get(self._url, headers=headers, ssl=trust, allow_redirects=False) as answer:
            if answer.status == 304 and "If-None-Match" in headers:
                return None
            if answer.status != 200:
                raise _NoKeys(meaning_of_status(answer.status))
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise _NoKeys("answers in an encoding that was not asked for")
            content = bytearray()
            async for piece in answer.content.iter_any():
                content += piece
                if len(content) > SET_LIMIT_BYTES:
                    raise _NoKeys(f"answers with more than {SET_LIMIT_BYTES} bytes")
            return _Answer(bytes(content), _etag(answer.headers.get("ETag")))

    def _shown_url(self) -> str:
        """Without the query, where some put a secret."""
        return self._url.partition("?")[0]


@functools.cache
def _system_trust() -> ssl.SSLContext:
    """Loading it takes 30 ms and a megabyte: one is enough for all issuers."""
    return ssl.create_default_context()


def _etag(header: str | None) -> str | None:
    fits = header is not None and len(header) <= ETAG_LIMIT and header.isascii() and header.isprintable()
    return header if fits else None
