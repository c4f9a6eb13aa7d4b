"""Authentication of a program, built from the files and URLs that its settings name."""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import structlog

from poolmuster.auth.authenticator import CredentialAuthenticator
from poolmuster.auth.credentials_file import ParsedCredentials, changes, parse_credentials, warnings
from poolmuster.auth.jwks import open_key_set
from poolmuster.auth.service_accounts import ServiceAccounts
from poolmuster.http.tls import TlsFiles
from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import WatchedFiles
from poolmuster.ports.clock import Clock
from poolmuster.programs.settings.listen import ListenSettings, OidcSettings, UsageError
from poolmuster.programs.supervisor import TaskFunction

KEYS_WAIT_S = 3.0
"""A fetch has two seconds. One that hangs for longer must not delay the start, or the stop."""

log = structlog.get_logger("poolmuster.front")


class AuthSetup:
    """``authenticator``, ``tls`` and ``accounts``, each ``None`` where it is not set; ``tasks`` keep them up to date.

    ``files`` are watched, by the names that the log and the metrics have for them. Raises `UsageError`, which names the
    flag whose file cannot be used.
    """

    def __init__(self, settings: ListenSettings, clock: Clock) -> None:
        self._clock = clock
        self.authenticator: CredentialAuthenticator | None = None
        self.tls: TlsFiles | None = None
        self.accounts: ServiceAccounts | None = None
        self.files: dict[str, WatchedFiles[Any]] = {}
        self.tasks: list[TaskFunction] = []
        if settings.tls_cert_path is not None and settings.tls_key_path is not None:
            self._read_certificates(settings.tls_cert_path, settings.tls_key_path, settings.tls_client_ca)
        if settings.oidc.issuers:
            self.accounts = self._open_accounts(settings.oidc)
            self.tasks += [keys.run for keys in self.accounts.issuers.values()]
        if settings.auth_tokens is not None:
            self._read_credentials(settings.auth_tokens)

    async def wait_keys(self) -> None:
        """Wait until ``tasks`` have fetched the keys of every issuer once, well or not; `KEYS_WAIT_S` at most.

        Before that, valid tokens would be refused.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEYS_WAIT_S):
                for keys in () if self.accounts is None else self.accounts.issuers.values():
                    await keys.first_fetch_done.wait()

    def _read_certificates(self, chain_path: str, key_path: str, client_ca_path: str | None) -> None:
        try:
            tls = self.tls = TlsFiles(chain_path, key_path, client_ca_path)
        except InvalidInput as error:
            flags = "--tls-cert-path, --tls-key-path" + (", --tls-client-ca" if client_ca_path is not None else "")
            raise UsageError(f"{flags}: {error.detail.rstrip('.')}") from error
        self._warn_of_certificate()
        self._watch("certificate", tls.pair, self._warn_of_certificate)
        if tls.client_ca is not None:
            self._watch("client authorities", tls.client_ca, self._invalidate)

    def _watch(self, name: str, files: WatchedFiles[Any], changed: Callable[[], None]) -> None:
        def reload() -> None:
            if files.problem is not None:
                log.error("file not reloaded, the last good content stays in use", file=name, problem=files.problem)
                return
            changed()
            log.info("file reloaded", file=name, paths=list(files.paths))

        self.files[name] = files
        self.tasks.append(functools.partial(files.watch, self._clock.sleep_ms, reload))

    def _warn_of_certificate(self) -> None:
        if self.tls is not None and (notice := self.tls.current().notice(self._clock.wall_ms())) is not None:
            log.warning("clients will not accept the certificate", why=notice)

    def _open_accounts(self, oidc: OidcSettings) -> ServiceAccounts:
        ca_certs, token_files = dict(oidc.ca_certs), dict(oidc.token_files)
        try:
            key_sets = {
                issuer: open_key_set(
                    issuer,
                    source,
                    self._clock,
                    self._invalidate,
                    refresh_ms=round(oidc.refresh_s * 1000),
                    ca_file=ca_certs.get(issuer),
                    token_file=token_files.get(issuer),
                )
                for issuer, source in oidc.issuers
            }
        except InvalidInput as error:
            raise UsageError(f"--auth-oidc: {error.detail.rstrip('.')}") from error
        return ServiceAccounts(key_sets, oidc.audience, self._clock)

    def _read_credentials(self, path: str) -> None:
        try:
            files = WatchedFiles((path,), parse_credentials)
        except InvalidInput as error:
            raise UsageError(f"--auth-tokens: {error.detail.rstrip('.')}") from error
        self.authenticator = CredentialAuthenticator(
            lambda: files.value, self._clock, accounts=self.accounts, trusts=self._trusts
        )
        self._warn_of_credentials(files.value)
        known = files.value

        def changed() -> None:
            nonlocal known
            self._invalidate()
            log.info("principals changed", **changes(known, files.value))
            known = files.value
            self._warn_of_credentials(known)

        self._watch("credentials", files, changed)

    def _warn_of_credentials(self, credentials: ParsedCredentials) -> None:
        """Log the credentials that cannot be used: otherwise that shows only when a request is refused."""
        issuers = () if self.accounts is None else self.accounts.issuers.keys()
        certificates = self.tls is not None and self.tls.current().authorities is not None
        now_ms = self._clock.wall_ms()
        for name, why in warnings(credentials, issuers=issuers, certificates=certificates, now_ms=now_ms):
            log.warning("credential cannot be used", name=name, why=why)

    def _trusts(self, anchor: bytes) -> bool:
        client_ca = None if self.tls is None else self.tls.client_ca
        return client_ca is not None and client_ca.value.trusts(anchor)

    def _invalidate(self) -> None:
        if self.authenticator is not None:
            self.authenticator.invalidate()
