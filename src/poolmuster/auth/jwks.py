"""The signing keys of each issuer: a key set in a file, or fetched from a URL again and again by a task of its own.

Verification uses the keys of the last good read and never waits for others.
"""

import asyncio
import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import structlog

from poolmuster.auth.jwk import REPORT_LIMIT, SET_LIMIT_BYTES, SigningKey, SigningKeys, parse_signing_keys
from poolmuster.model.address import Address
from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import WatchedFiles, parse_token
from poolmuster.platform.net_errors import reason_of
from poolmuster.platform.resolver import Resolver
from poolmuster.platform.threads import run_in_daemon_thread
from poolmuster.platform.tls_client import parse_authorities, system_context
from poolmuster.ports.clock import Clock

CONNECT_TIMEOUT_S = 1.0
TIMEOUT_S = 2.0
REQUESTED_INTERVAL_MS = 1_000
"""The shortest time between two fetches where unknown keys request the second."""

REFRESH_INTERVAL_LEAST_MS = 100
ETAG_LIMIT = 256

log = structlog.get_logger(__name__)

_shared_system_context = functools.cache(system_context)  # loading one takes 30 ms and a megabyte


class KeySet(ABC):
    """The keys of ``issuer`` as of the last good read, replaced as a whole.

    A read that fails, or finds no usable key, leaves them and sets ``problem``: tokens stay valid meanwhile.
    To distrust an issuer, remove its flag, or its lines from the credentials file.

    ``first_fetch_done`` is set when the first read has ended, well or not; that takes seconds at most. ``generation``
    grows whenever the keys change. ``on_withdrawal`` is called when a key was removed: only then must earlier contexts
    be authenticated again.
    """

    def __init__(self, issuer: str, clock: Clock, on_withdrawal: Callable[[], None] = lambda: None) -> None:
        self.issuer = issuer
        self.generation = 0
        self.problem: str | None = "they were not fetched yet"
        self.failures = 0
        self.first_fetch_done = asyncio.Event()
        self._clock = clock
        self._on_withdrawal = on_withdrawal
        self._keys = SigningKeys({})
        self._thumbprints: frozenset[bytes] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether there was a good read."""
        return self.generation > 0

    def __len__(self) -> int:
        return len(self._keys.by_id)

    def key(self, key_id: str) -> SigningKey | None:
        """The key with this id."""
        return self._keys.by_id.get(key_id)

    def holds(self, thumbprint: bytes) -> bool:
        """Whether the set holds the key with this SHA-256 (RFC 7638), under any id."""
        return thumbprint in self._thumbprints

    def request_refresh(self) -> None:
        """Fetch soon, because a token names an unknown key, which may be new. Returns at once."""
        return

    @abstractmethod
    async def run(self) -> None:
        """Keep the keys up to date. Runs until cancelled."""

    def _replace(self, keys: SigningKeys) -> None:
        """Use the keys of a good read."""
        self._clear_problem()
        if keys.unusable != self._keys.unusable and keys.unusable:
            why = list(keys.unusable[:REPORT_LIMIT])
            log.warning("issuer keys ignored", issuer=self.issuer, count=len(keys.unusable), why=why)
        before, after = self._keys.facts, keys.facts
        withdrawn = self._thumbprints
        self._keys = keys
        self._thumbprints = frozenset(key.thumbprint for key in keys.by_id.values())
        if before == after:
            return
        self.generation += 1
        log.info(
            "issuer keys changed",
            issuer=self.issuer,
            added=_printable(after.keys() - before.keys()),
            removed=_printable(before.keys() - after.keys()),
            replaced=_printable({key_id for key_id in before.keys() & after.keys() if before[key_id] != after[key_id]}),
        )
        if withdrawn - self._thumbprints:
            self._on_withdrawal()

    def _clear_problem(self) -> None:
        """Record a good read."""
        if self.problem is not None and self.is_known:
            log.info("issuer keys readable again", issuer=self.issuer)
        self.problem = None
        self.first_fetch_done.set()

    def _fail(self, problem: str) -> None:
        """Record a failed read, which leaves the keys."""
        self.failures += 1
        if problem != self.problem:
            log.warning("issuer keys not readable", issuer=self.issuer, problem=problem, kept=len(self))
        self.problem = problem
        self.first_fetch_done.set()


class FileKeySet(KeySet):
    """The keys in a file, which is read at once. Raises `InvalidInput` if it holds no usable key then."""

    def __init__(self, issuer: str, path: str, clock: Clock, on_withdrawal: Callable[[], None] = lambda: None) -> None:
        super().__init__(issuer, clock, on_withdrawal)
        self._files = WatchedFiles([path], parse_signing_keys)
        self._replace(self._files.value)

    async def run(self) -> None:
        """Watch the file."""
        await self._files.watch(self._clock.sleep_ms, self._file_changed)

    def _file_changed(self) -> None:
        if self._files.problem is None:
            self._replace(self._files.value)
        else:
            self._fail(self._files.problem)


class _Response(NamedTuple):
    content: bytes
    etag: str | None


class UrlKeySet(KeySet):
    """The keys at ``url`` (see `check_key_url`), fetched every ``refresh_ms``.

    ``ca_file`` names the authorities to trust instead of the system's; ``token_file`` a bearer token that is sent to
    this URL only. Both are read again before each fetch. Raises `InvalidInput` where one of them cannot be used now.

    ``Cache-Control`` of the response is ignored: a withdrawn key must stop counting.
    """

    def __init__(
        self,
        issuer: str,
        url: str,
        clock: Clock,
        on_withdrawal: Callable[[], None] = lambda: None,
        *,
        refresh_ms: int = 1_000,
        ca_file: str | None = None,
        token_file: str | None = None,
    ) -> None:
        super().__init__(issuer, clock, on_withdrawal)
        self._url = url
        self._refresh_ms = max(refresh_ms, REFRESH_INTERVAL_LEAST_MS)
        self._authorities = None if ca_file is None else WatchedFiles([ca_file], parse_authorities)
        self._token = None if token_file is None else WatchedFiles([token_file], parse_token)
        self._refresh_requested = asyncio.Event()
        self._last_good: _Response | None = None

    def request_refresh(self) -> None:
        """Fetch at once, if the last fetch began a second ago or earlier; else then."""
        self._refresh_requested.set()

    async def run(self) -> None:
        """Fetch, again and again."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=Resolver(), limit=1),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S, connect=CONNECT_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S),
            auto_decompress=False,
            trust_env=False,  # it would send the credentials in ~/.netrc
        ) as session:
            while True:
                began_ms = self._clock.monotonic_ms()
                self._refresh_requested.clear()
                await self._fetch(session)
                await self._pause(began_ms)

    async def _pause(self, began_ms: int) -> None:
        least_ms = min(REQUESTED_INTERVAL_MS, self._refresh_ms)
        await self._clock.sleep_ms(began_ms + least_ms - self._clock.monotonic_ms())
        rest_ms = began_ms + self._refresh_ms - self._clock.monotonic_ms()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest_ms / 1_000):
                await self._refresh_requested.wait()

    async def _fetch(self, session: aiohttp.ClientSession) -> None:
        try:
            await self._refresh_files()
            response = await self._get(session)
            if self._last_good is not None and response.content == self._last_good.content:
                self._clear_problem()
                return
            keys = await run_in_daemon_thread("key-set", functools.partial(parse_signing_keys, response.content))
        except InvalidInput as error:
            problem = error.detail
        except (aiohttp.ClientError, OSError) as error:
            problem = reason_of(error, self._url)
        except ValueError as error:  # of a host name, by its class only: the text may hold anything
            problem = type(error).__name__
        else:
            self._last_good = response
            self._replace(keys)
            return
        self._fail(f"{self._url.partition('?')[0]}: {problem}")  # a query may hold a secret

    async def _refresh_files(self) -> None:
        for file in (self._authorities, self._token):
            if file is not None and await run_in_daemon_thread("key-files", file.refresh) and file.problem is not None:
                log.warning("file for issuer keys not reloaded", issuer=self.issuer, problem=file.problem)

    async def _get(self, session: aiohttp.ClientSession) -> _Response:
        """The response, or the last good one where it says "not modified". Raises `InvalidInput` for any other."""
        headers = {"Accept": "application/jwk-set+json, application/json", "Accept-Encoding": "identity"}
        known = self._last_good
        if known is not None and known.etag is not None:
            headers["If-None-Match"] = known.etag
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.value}"
        tls = self._authorities.value if self._authorities is not None else _shared_system_context()
        async with session.get(self._url, headers=headers, ssl=tls, allow_redirects=False) as response:
            if response.status == 304 and known is not None and known.etag is not None:
                return known
            if response.status != 200:
                raise InvalidInput(f"answers {response.status}{_status_hint(response.status)}")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise InvalidInput("answers in an encoding that was not requested")
            content = bytearray()
            async for piece in response.content.iter_any():
                content += piece
                if len(content) > SET_LIMIT_BYTES:
                    raise InvalidInput(f"answers with more than {SET_LIMIT_BYTES} bytes")
            etag = response.headers.get("ETag", "")
            fits = 0 < len(etag) <= ETAG_LIMIT and etag.isascii() and etag.isprintable()
            return _Response(bytes(content), etag if fits else None)


def open_key_set(
    issuer: str,
    source: str,
    clock: Clock,
    on_withdrawal: Callable[[], None] = lambda: None,
    *,
    refresh_ms: int = 1_000,
    ca_file: str | None = None,
    token_file: str | None = None,
) -> KeySet:
    """The keys of ``issuer`` from ``source``: a URL, or the path of a file. Raises `InvalidInput`."""
    if "://" not in source:
        return FileKeySet(issuer, source, clock, on_withdrawal)
    check_key_url(source)
    return UrlKeySet(
        issuer, source, clock, on_withdrawal, refresh_ms=refresh_ms, ca_file=ca_file, token_file=token_file
    )


def check_key_url(url: str) -> None:
    """Raises `InvalidInput` unless ``url`` is https, or http to this machine, without credentials."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput(f"{url!r} is no URL: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("the URL of a key set holds no user and no password; a token comes from a file")
    if parts.scheme not in {"https", "http"} or not host or parts.fragment or not url.isascii() or " " in url:
        raise InvalidInput(f"{url!r} is not the https URL of a key set")
    if parts.scheme == "http" and not Address(host, 0).is_loopback:
        raise InvalidInput(f"{url!r} is not https, so anyone on the network path could replace the keys")


def _status_hint(status: int) -> str:
    if 300 <= status < 400:
        return ", and redirects are not followed"
    return ": it expects a token, or another one" if status in {401, 403} else ""


def _printable(key_ids: set[str]) -> list[str]:
    """Ids as they may be logged, whatever characters the issuer chose."""
    return [ascii(key_id[:80])[1:-1] for key_id in sorted(key_ids)]
