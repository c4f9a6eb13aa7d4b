"""The token, certificate and authorities for connections to peers, from files that are read again when they change."""

import ssl

import msgspec
import structlog

from poolmuster.platform.files import WatchedFiles, parse_token
from poolmuster.platform.tls_client import load_client_certificate, parse_authorities, parse_key_pair, system_context
from poolmuster.ports.clock import Clock

REFRESH_INTERVAL_MS = 1_000

log = structlog.get_logger("poolmuster.peers")


class PeerFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Paths. ``tls``: connections to peers use HTTPS. ``pair`` is the certificate of this instance, and its key."""

    tls: bool = False
    token: str | None = None
    authorities: str | None = None
    pair: tuple[str, str] | None = None


class PeerCredentials:
    """`authorization` and `context` for the next connection. Raises `InvalidInput`, which names the file."""

    def __init__(self, files: PeerFiles, clock: Clock) -> None:
        self._clock = clock
        self._token = None if files.token is None else WatchedFiles([files.token], parse_token)
        self._authorities: WatchedFiles[bytes] | None = None
        self._pair: WatchedFiles[bytes] | None = None
        if files.tls and files.authorities is not None:
            self._authorities = WatchedFiles([files.authorities], _check_authorities)
        if files.tls and files.pair is not None and files.token is None:
            # Not beside a token: a server that cannot verify a certificate ends the handshake, whatever comes after.
            self._pair = WatchedFiles(files.pair, parse_key_pair)
        self.context: ssl.SSLContext | None = self._make_context() if files.tls else None
        self._refresh_at_ms = clock.monotonic_ms() + REFRESH_INTERVAL_MS

    @property
    def authorization(self) -> str | None:
        """The header's value."""
        return None if self._token is None else f"Bearer {self._token.value}"

    @property
    def shows_certificate(self) -> bool:
        """Whether this instance sends its certificate to a peer that requests one."""
        return self._pair is not None

    def refresh(self) -> None:
        """Read the files again, once a second at most."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._refresh_at_ms:
            return
        self._refresh_at_ms = now_ms + REFRESH_INTERVAL_MS
        for files in (self._token, self._authorities, self._pair):
            if files is None or not files.refresh():
                continue
            if files.problem is not None:
                log.warning("peer credentials not usable, the last good ones stay", problem=files.problem)
                continue
            log.info("peer credentials reloaded", files=list(files.paths))
            if files is not self._token:
                self.context = self._make_context()

    def _make_context(self) -> ssl.SSLContext:
        context = system_context() if self._authorities is None else parse_authorities(self._authorities.value)
        if self._pair is not None:
            load_client_certificate(context, self._pair.value)
        return context


def _check_authorities(content: bytes) -> bytes:
    parse_authorities(content)
    return content
