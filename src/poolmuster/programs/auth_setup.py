"""What tells who asks, put together from the files and places that settings name."""

import asyncio
import contextlib
from collections.abc import Iterator

import structlog

from poolmuster.auth.authenticator import CredentialAuthenticator
from poolmuster.auth.credentials_file import ParsedCredentials as CredentialsFile
from poolmuster.auth.credentials_file import parse_credentials
from poolmuster.auth.credentials_lint import changes, warnings
from poolmuster.auth.file_reloader import FileReloader, WatchedEntry
from poolmuster.auth.jwks_source import open_key_set
from poolmuster.auth.service_accounts import ServiceAccounts
from poolmuster.http.tls import TlsFiles
from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import WatchedFiles
from poolmuster.ports.clock import Clock
from poolmuster.programs.settings.listen import ListenSettings, OidcSettings, UsageError
from poolmuster.programs.supervisor import TaskFunction

KEYS_WAIT_S = 3.0
"""A fetch has two seconds; what hangs beyond them must not hold up a start, nor an end."""

log = structlog.get_logger("poolmuster.front")


class AuthSetup:
    """``authenticator``, ``tls`` and ``accounts``, each ``None`` where it is not set; `tasks` keep them up to date.

    Raises `UsageError`, which names the flag whose file cannot be used.
    """

    def __init__(self, settings: ListenSettings, clock: Clock) -> None:
        self._clock = clock
        self.authenticator: CredentialAuthenticator | None = None
        self.tls: TlsFiles | None = None
        self.accounts: ServiceAccounts | None = None
        self._known: CredentialsFile | None = None
        kept: list[WatchedEntry] = []
        if settings.tls_cert_path is not None and settings.tls_key_path is not None:
            kept += self._read_certificates(settings.tls_cert_path, settings.tls_key_path, settings.tls_client_ca)
        if settings.oidc.issuers:
            self.accounts = self._open_accounts(settings.oidc)
        if settings.auth_tokens is not None:
            kept.append(self._read_credentials(settings.auth_tokens))
        self.upkeep = FileReloader(kept, clock)

    @property
    def tasks(self) -> tuple[TaskFunction, ...]:
        """What the supervisor runs."""
        key_sets = () if self.accounts is None else self.accounts.issuers.values()
        return (self.upkeep.run, *(keys.run for keys in key_sets))

    async def wait_keys(self) -> None:
        """Until the keys of every issuer were fetched once, well or not, by `tasks`; `KEYS_WAIT_S` at most.

        Whoever were let in before would be refused for nothing.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEYS_WAIT_S):
                for keys in () if self.accounts is None else self.accounts.issuers.values():
                    await keys.tried.wait()

    def _read_certificates(self, chain_path: str, key_path: str, client_ca_path: str | None) -> Iterator[WatchedEntry]:
        try:
            tls = self.tls = TlsFiles(chain_path, key_path, client_ca_path)
        except InvalidInput as error:
            flags = "--tls-cert-path, --tls-key-path" + (", --tls-client-ca" if client_ca_path is not None else "")
            raise UsageError(f"{flags}: {error.detail.rstrip('.')}") from error
        self._warn_of_certificate()
        yield WatchedEntry("certificate", tls.pair, self._warn_of_certificate)
        if tls.client_ca is not None:
            yield WatchedEntry("client authorities", tls.client_ca, self._begin_generation)

    def _warn_of_certificate(self) -> None:
        assert self.tls is not None, "there is one"
        if (notice := self.tls.current().notice(self._clock.wall_ms())) is not None:
            log.warning("Clients will not accept the certificate", why=notice)

    def _open_accounts(self, oidc: OidcSettings) -> ServiceAccounts:
        ca_certs, token_files = dict(oidc.ca_certs), dict(oidc.token_files)
        try:
            key_sets = {
                issuer: open_key_set(
                    issuer,
                    source,
                    self._clock,
                    self._begin_generation,
                    refresh_ms=round(oidc.refresh_s * 1000),
                    ca_file=ca_certs.get(issuer),
                    token_file=token_files.get(issuer),
                )
                for issuer, source in oidc.issuers
            }
        except InvalidInput as error:
            raise UsageError(f"--auth-oidc: {error.detail.rstrip('.')}") from error
        return ServiceAccounts(key_sets, oidc.audience, self._clock)

    def _read_credentials(self, path: str) -> WatchedEntry:
        try:
            files = WatchedFiles((path,), parse_credentials)
        except InvalidInput as error:
            raise UsageError(f"--auth-tokens: {error.detail.rstrip('.')}") from error
        self.authenticator = CredentialAuthenticator(
            lambda: files.value, self._clock, accounts=self.accounts, trusts=self._trusts
        )
        self._known = files.value
        self._tell(files.value)
        return WatchedEntry("credentials", files, lambda: self._credentials_changed(files.value))

    def _credentials_changed(self, credentials: CredentialsFile) -> None:
        self._begin_generation()
        if self._known is not None:
            log.info("Who is known has changed", **changes(self._known, credentials))
        self._known = credentials
        self._tell(credentials)

    def _tell(self, credentials: CredentialsFile) -> None:
        """Say what in the file can never count: that is found out otherwise only when somebody is refused."""
        issuers = () if self.accounts is None else self.accounts.issuers.keys()
        certificates = self.tls is not None and self.tls.current().authorities is not None
        now_ms = self._clock.wall_ms()
        for name, why in warnings(credentials, issuers=issuers, certificates=certificates, now_ms=now_ms):
            log.warning("Nobody can be let in by this", name=name, why=why)

    def _trusts(self, anchor: bytes) -> bool:
        client_ca = None if self.tls is None else self.tls.client_ca
        return client_ca is not None and client_ca.value.trusts(anchor)

    def _begin_generation(self) -> None:
        if self.authenticator is not None:
            self.authenticator.invalidate()
