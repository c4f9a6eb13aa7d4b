"""Authenticates requests: verifies the credential that one presents, and finds its principal in the credentials file.

A digest of each accepted token is cached with its principal, so a heartbeat with a token costs one short hash more than
one without, and so does one with a wrong token. No cached value is a credential.
"""

import re
import secrets
from collections.abc import Callable
from functools import partial
from hashlib import blake2b

from poolmuster.auth.credentials_file import ParsedCredentials, digest_of
from poolmuster.auth.service_accounts import ServiceAccounts
from poolmuster.model.auth import (
    AuthenticationError,
    AuthFailure,
    CertificateCredential,
    ServiceAccountCredential,
    TokenCredential,
    VerifiedCredential,
)
from poolmuster.ports.authenticator import AuthContext
from poolmuster.ports.clock import Clock

CACHE_SIZE = 30_000
"""As many contexts as pools and streams; the oldest is evicted first, and its credential verified again."""

JWT_DOTS = 2
_digest = partial(blake2b, digest_size=24)  # not OpenSSL's, whose calls take longer than the hash
_BEARER = re.compile(rb"(?i:bearer) +([!-~]+) *")


class CredentialAuthenticator:
    """`poolmuster.ports.authenticator.Authenticator` by a credentials file.

    ``credentials`` returns the file as of its last good read; ``trusts`` whether the trust anchor of a certificate is
    trusted now; without it no certificate is. `invalidate` must be called when either would return something else.
    """

    def __init__(
        self,
        credentials: Callable[[], ParsedCredentials],
        clock: Clock,
        *,
        accounts: ServiceAccounts | None = None,
        trusts: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.generation = 1
        self._credentials = credentials
        self._clock = clock
        self._accounts = accounts
        self._trusts = trusts
        self._cache: dict[bytes | CertificateCredential, AuthContext] = {}
        self._salt = secrets.token_bytes(16)

    def invalidate(self) -> None:
        """Authorize every cached credential again before its next use."""
        self.generation += 1

    def authenticate(self, authorization: bytes | None, certificate: CertificateCredential | None) -> AuthContext:
        """See `poolmuster.ports.authenticator.Authenticator.authenticate`."""
        if authorization is None:
            if certificate is None:
                raise AuthenticationError(AuthFailure.MISSING, "no credentials")
            return self._cached(certificate, certificate)
        # First by the header as it is, without parsing it: this runs for every heartbeat.
        context = self._cache.get(_digest(self._salt + authorization).digest())
        if context is not None and self._is_valid(context):
            return context
        bearer = _BEARER.fullmatch(authorization)
        if bearer is None:
            raise AuthenticationError(AuthFailure.MALFORMED, "the header is not 'Bearer TOKEN', in visible ASCII")
        return self._cached(_digest(self._salt + b"Bearer " + bearer[1]).digest(), bearer[1])

    def reauthenticate(self, context: AuthContext) -> AuthContext:
        """See `poolmuster.ports.authenticator.Authenticator.reauthenticate`."""
        if self._is_valid(context):
            return context
        assert context.credential is not None, "anonymous contexts are of no authenticator"
        return self._authorize(context.credential)

    def _cached(self, key: bytes | CertificateCredential, presented: bytes | CertificateCredential) -> AuthContext:
        """The context of a token or certificate. None is verified twice while it is cached by its ``key``."""
        known = self._cache.get(key)
        if known is not None and self._is_valid(known):
            return known
        self._cache.pop(key, None)
        credential = known.credential if known is not None else None
        context = self._authorize(credential or self._verify(presented))
        if len(self._cache) >= CACHE_SIZE:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = context
        return context

    def _is_valid(self, context: AuthContext) -> bool:
        return context.generation == self.generation and (
            context.expires_at_ms is None or self._clock.wall_ms() < context.expires_at_ms
        )

    def _verify(self, presented: bytes | CertificateCredential) -> VerifiedCredential:
        if isinstance(presented, CertificateCredential):
            return presented  # the handshake has verified it
        credentials, credential = self._credentials(), TokenCredential(digest_of(presented))
        if presented.count(b".") != JWT_DOTS or credential.digest in credentials.tokens:
            return credential
        if self._accounts is None:
            text = "it looks like a service account's token, and --auth-oidc is not set"
            raise AuthenticationError(AuthFailure.UNKNOWN_TOKEN, text)
        return self._accounts.verify(presented.decode("ascii"), lambda *account: account in credentials.accounts)

    def _authorize(self, credential: VerifiedCredential) -> AuthContext:
        """The context of a verified credential, by what is trusted now. Raises `AuthenticationError`."""
        entry = self._credentials().find(credential)
        ends_ms = [] if entry.expires_at_ms is None else [entry.expires_at_ms]
        name = entry.principal.name
        if isinstance(credential, CertificateCredential):
            if self._trusts is None or not self._trusts(credential.trust_anchor):
                text = f"the authority of the certificate of {name!r} is not trusted any more"
                raise AuthenticationError(AuthFailure.UNTRUSTED_AUTHORITY, text)
            ends_ms.append(credential.expires_at_ms)
        elif isinstance(credential, ServiceAccountCredential):
            if self._accounts is None or not self._accounts.holds(credential):
                raise AuthenticationError(AuthFailure.UNKNOWN_KEY, f"the key of the token of {name!r} was withdrawn")
            ends_ms.append(credential.expires_at_ms)
        expires_at_ms = min(ends_ms, default=None)
        if expires_at_ms is not None and self._clock.wall_ms() >= expires_at_ms:
            raise AuthenticationError(AuthFailure.EXPIRED, f"the credential of {name!r} has expired")
        return AuthContext(
            principal=entry.principal, credential=credential, generation=self.generation, expires_at_ms=expires_at_ms
        )
