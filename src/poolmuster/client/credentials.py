"""What a client shows of itself, and whom it trusts: files that are read again while it runs.

Looked at once a second at most, by the calls themselves: while nothing is called nothing is read. What changed is used
from the call on that finds it; calls in flight and open watches go on with what they began with. A file that becomes
useless leaves the last good content in use, and the log says so once.
"""

import asyncio
import logging
import math
import ssl
from hashlib import sha256

from poolmuster.client.settings import ClientSettings
from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import WatchedFiles, parse_token
from poolmuster.platform.threads import run_in_daemon_thread
from poolmuster.platform.tls_client import load_client_certificate, parse_authorities, parse_key_pair, system_context
from poolmuster.ports.clock import Clock

LOOK_INTERVAL_MS = 1_000
READ_LIMIT_MS = 500
"""How long a call waits for a reading; one that takes longer is used by a later call."""

SETTLE_MS = 50
"""What changed is read again after this time, so that no half-written file is taken."""

log = logging.getLogger("poolmuster.client")


class HiddenText(str):
    """A text that goes onto the wire as it is, and shows nowhere else: not in any ``repr`` that it is part of."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'(hidden)'"


class UnusableFile(InvalidInput):
    """A file of credentials cannot be used. ``setting`` is the field of `ClientSettings` that names it."""

    def __init__(self, detail: str, setting: str) -> None:
        super().__init__(detail)
        self.setting = setting


class CredentialFiles:
    """The files that ``settings`` name, as last read well. Raises `UnusableFile` for one that cannot be used now."""

    def __init__(self, settings: ClientSettings) -> None:
        self.token: WatchedFiles[HiddenText] | None = None
        self.authorities: WatchedFiles[bytes] | None = None
        self.pair: WatchedFiles[bytes] | None = None
        setting = "token_file"
        try:
            if settings.token_file is not None:
                self.token = WatchedFiles([settings.token_file], _authorization)
            setting = "ca_cert"
            if settings.ca_cert is not None:
                self.authorities = WatchedFiles([settings.ca_cert], _authorities)
            setting = "client_cert"
            if settings.client_cert is not None:
                paths = [path for path in (settings.client_cert, settings.client_key) if path is not None]
                self.pair = WatchedFiles(paths, parse_key_pair)
        except InvalidInput as error:
            raise UnusableFile(f"{error.detail}.", setting) from error

    @property
    def all(self) -> tuple[WatchedFiles[HiddenText] | WatchedFiles[bytes], ...]:
        """Those that there are."""
        return tuple(files for files in (self.token, self.authorities, self.pair) if files is not None)

    @property
    def tls_state(self) -> bytes:
        """A digest of what a context of TLS depends on."""
        held = [files.value for files in (self.authorities, self.pair) if files is not None]
        return sha256(b"".join(len(content).to_bytes(8, "big") + content for content in held)).digest()

    def context(self) -> ssl.SSLContext:
        """A context of TLS by what they hold. Raises `InvalidInput` where ``SSL_CERT_FILE`` cannot be used."""
        context = system_context() if self.authorities is None else parse_authorities(self.authorities.value)
        if self.pair is not None:
            load_client_certificate(context, self.pair.value)
        return context


class ClientCredentials:
    """What goes with every call: `authorization`, and `tls` for ``https``. Call `look` before.

    Raises `UnusableFile`, or `InvalidInput` where ``SSL_CERT_FILE`` cannot be used. ``tls`` is ``True`` where no URL
    needs it.
    """

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._clock = clock
        self._files = CredentialFiles(settings)
        self._needs_tls = any(url.startswith("https:") for url in settings.urls)
        self._next_look_ms = clock.monotonic_ms() + LOOK_INTERVAL_MS if self._files.all else math.inf
        self.authorization: str | None = None
        self.tls: ssl.SSLContext | bool = True
        if self._files.token is not None:
            self.authorization = self._files.token.value
        if self._needs_tls:
            self.tls = self._files.context()
        self._tls_state = self._files.tls_state
        self._reading: asyncio.Future[list[WatchedFiles[HiddenText] | WatchedFiles[bytes]]] | None = None

    def __repr__(self) -> str:
        return f"Credentials({', '.join(path for files in self._files.all for path in files.paths)})"

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files now; what they last held is in use."""
        return tuple(files.problem for files in self._files.all if files.problem is not None)

    @property
    def is_due(self) -> bool:
        """Whether it is time to `look`."""
        return self._clock.monotonic_ms() >= self._next_look_ms

    async def look(self) -> None:
        """Read the files again. Where something changed this takes `SETTLE_MS`."""
        self._next_look_ms = self._clock.monotonic_ms() + LOOK_INTERVAL_MS
        if not await self._read():
            return
        if any(files.has_unconfirmed_change for files in self._files.all):
            await self._clock.sleep_ms(SETTLE_MS)
            await self._read()

    def refused(self) -> None:
        """They did not count: look again before the next call, whenever that is."""
        if self._files.all:
            self._next_look_ms = self._clock.monotonic_ms()

    def counts_for(self, url: str) -> bool:
        """Whether anything is shown to what is behind ``url``."""
        return self.authorization is not None or (self._files.pair is not None and url.startswith("https:"))

    async def _read(self) -> bool:
        """Read all beside the event loop. Returns whether that has come to an end: a file system may hang."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(run_in_daemon_thread("credential-files", self._refreshed))
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

    def _refreshed(self) -> list[WatchedFiles[HiddenText] | WatchedFiles[bytes]]:
        return [files for files in self._files.all if files.refresh()]

    def _use(self, changed: list[WatchedFiles[HiddenText] | WatchedFiles[bytes]]) -> None:
        for files in changed:
            if files.problem is None:
                log.info("Credentials were read again: %s", ", ".join(files.paths))
            else:
                log.warning("A file is not usable; what it last held stays in use: %s", files.problem)
        if self._files.token is not None:
            self.authorization = self._files.token.value
        if self._needs_tls and self._files.tls_state != self._tls_state:
            self._tls_state = self._files.tls_state
            try:
                self.tls = self._files.context()
            except InvalidInput as error:  # SSL_CERT_FILE went away meanwhile
                log.warning("Certificates are not usable; those that were stay in use: %s", error.detail)


def _authorization(content: bytes) -> HiddenText:
    return HiddenText(f"Bearer {parse_token(content)}")


def _authorities(content: bytes) -> bytes:
    parse_authorities(content)
    return content
