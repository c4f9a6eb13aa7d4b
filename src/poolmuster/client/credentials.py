"""The credentials that a client sends, and the authorities that it trusts: files that are read again while it runs.

Calls read them, once a second at most: without calls nothing is read. A change counts from the call on that finds it;
calls in flight and open watches go on with what they began with. A file that becomes unusable leaves the last good
content in use, with one warning in the log.
"""

import asyncio
import logging
import math
import ssl
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeVar

from poolmuster.client.settings import ClientSettings
from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import WatchedFiles, parse_token
from poolmuster.platform.threads import run_in_daemon_thread
from poolmuster.platform.tls_client import load_client_certificate, parse_authorities, parse_key_pair, system_context
from poolmuster.ports.clock import Clock

REFRESH_INTERVAL_MS = 1_000
READ_LIMIT_MS = 500
"""How long a call waits for the files to be read; a later call uses the result of a read that takes longer."""

SETTLE_MS = 50
"""Changed files are read again after this time, so that no half-written file is used."""

T = TypeVar("T")

log = logging.getLogger("poolmuster.client")


class HiddenText(str):
    """A text that is sent as it is, and does not show in any ``repr`` that it is part of."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'(hidden)'"


class UnusableFile(InvalidInput):
    """A file of credentials cannot be used. ``setting`` is the field of `ClientSettings` that names it."""

    def __init__(self, detail: str, setting: str) -> None:
        super().__init__(detail)
        self.setting = setting


class CredentialFiles:
    """The files that ``settings`` name, as of their last good read. Raises `UnusableFile` for one that is bad now."""

    def __init__(self, settings: ClientSettings) -> None:
        self.token = _open("token_file", [settings.token_file], _authorization)
        self.authorities = _open("ca_cert", [settings.ca_cert], _authorities)
        self.pair = _open("client_cert", [settings.client_cert, settings.client_key], parse_key_pair)
        given = (self.token, self.authorities, self.pair)
        self.all: tuple[WatchedFiles[Any], ...] = tuple(files for files in given if files is not None)

    @property
    def tls_state(self) -> bytes:
        """A digest of the content that a context of TLS is made from."""
        held = [files.value for files in (self.authorities, self.pair) if files is not None]
        return sha256(b"".join(len(content).to_bytes(8, "big") + content for content in held)).digest()

    def context(self) -> ssl.SSLContext:
        """A context of TLS from their content. Raises `InvalidInput` where ``SSL_CERT_FILE`` cannot be used."""
        context = system_context() if self.authorities is None else parse_authorities(self.authorities.value)
        if self.pair is not None:
            load_client_certificate(context, self.pair.value)
        return context


class ClientCredentials:
    """What goes with every call: `authorization`, and `tls` for ``https``. Call `refresh` before, where it `is_due`.

    Raises `UnusableFile`, or `InvalidInput` where ``SSL_CERT_FILE`` cannot be used. ``tls`` is ``True`` where no URL
    needs it.
    """

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._clock = clock
        self._files = CredentialFiles(settings)
        self._needs_tls = any(url.startswith("https:") for url in settings.urls)
        self._next_refresh_ms = clock.monotonic_ms() + REFRESH_INTERVAL_MS if self._files.all else math.inf
        self.authorization: str | None = None if self._files.token is None else self._files.token.value
        self.tls: ssl.SSLContext | bool = self._files.context() if self._needs_tls else True
        self._tls_state = self._files.tls_state
        self._reading: asyncio.Future[list[WatchedFiles[Any]]] | None = None

    def __repr__(self) -> str:
        return f"Credentials({', '.join(path for files in self._files.all for path in files.paths)})"

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files now; their last good content is in use."""
        return tuple(files.problem for files in self._files.all if files.problem is not None)

    @property
    def is_due(self) -> bool:
        """Whether it is time to `refresh`."""
        return self._clock.monotonic_ms() >= self._next_refresh_ms

    async def refresh(self) -> None:
        """Read the files again. Where something changed this takes `SETTLE_MS`."""
        self._next_refresh_ms = self._clock.monotonic_ms() + REFRESH_INTERVAL_MS
        if await self._read() and any(files.has_unconfirmed_change for files in self._files.all):
            await self._clock.sleep_ms(SETTLE_MS)
            await self._read()

    def request_refresh(self) -> None:
        """The service refused them: refresh before the next call, whenever that is."""
        if self._files.all:
            self._next_refresh_ms = self._clock.monotonic_ms()

    def counts_for(self, url: str) -> bool:
        """Whether a call to ``url`` carries any credential."""
        return self.authorization is not None or (self._files.pair is not None and url.startswith("https:"))

    async def _read(self) -> bool:
        """Read all beside the event loop. Returns whether that came to an end in time: a file system may hang."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(run_in_daemon_thread("credential-files", self._changed_files))
        reading, timer = self._reading, asyncio.ensure_future(self._clock.sleep_ms(READ_LIMIT_MS))
        try:
            await asyncio.wait((reading, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not reading.done():
            return False
        self._reading = None
        self._use(reading.result())
        return True

    def _changed_files(self) -> list[WatchedFiles[Any]]:
        return [files for files in self._files.all if files.refresh()]

    def _use(self, changed: list[WatchedFiles[Any]]) -> None:
        for files in changed:
            if files.problem is None:
                log.info("credentials reloaded: %s", ", ".join(files.paths))
            else:
                log.warning("credentials not reloaded, the last good content stays in use: %s", files.problem)
        if self._files.token is not None:
            self.authorization = self._files.token.value
        if self._needs_tls and self._files.tls_state != self._tls_state:
            self._tls_state = self._files.tls_state
            try:
                self.tls = self._files.context()
            except InvalidInput as error:  # SSL_CERT_FILE was removed meanwhile
                log.warning("certificates not reloaded, the former ones stay in use: %s", error.detail)


def _open(setting: str, paths: list[str | None], parse: Callable[..., T]) -> WatchedFiles[T] | None:
    given = [path for path in paths if path is not None]
    try:
        return WatchedFiles(given, parse) if given else None
    except InvalidInput as error:
        raise UnusableFile(f"{error.detail}.", setting) from error


def _authorization(content: bytes) -> HiddenText:
    return HiddenText(f"Bearer {parse_token(content)}")


def _authorities(content: bytes) -> bytes:
    parse_authorities(content)
    return content
