"""Tells who asks: proofs made from what was presented, judged by the credentials file.

What was admitted is remembered by a digest of the token, so a heartbeat with a token costs one short hash more than
one without. A wrong token costs the same. Nothing that is kept would let anybody in.
"""

import re
import secrets
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Protocol

from poolmuster.auth.credentials_file import Account, ParsedCredentials
from poolmuster.auth.tokens import digest_of
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

REMEMBERED = 30_000
"""Admissions remembered at once, as many as pools and streams: the oldest is forgotten first, and proved again."""

SCHEME = b"bearer "
USUAL_SCHEME = b"Bearer "
JWT_DOTS = 2
_digest = partial(blake2b, digest_size=24)  # not of OpenSSL, which takes longer to be asked than to answer
_TOKEN = re.compile(rb"[!-~]+")


class TokenVerifier(Protocol):
    """Proves service accounts by their tokens."""

    def verify(self, token: str, known: Callable[[str, str, str], bool]) -> ServiceAccountCredential:
        """The account of ``token``. Raises `AuthenticationError`.

        ``known`` returns whether an account is in the credentials file: only such a token is verified.
        """
        ...

    def holds(self, proof: ServiceAccountCredential) -> bool:
        """Whether the key that ``proof`` rests on is still one of its issuer's."""
        ...


class CredentialAuthenticator:
    """`poolmuster.ports.authenticator.Authenticator` by a credentials file.

    ``credentials`` is the file as last read; ``trusts`` tells whether the anchor of a certificate's chain is trusted
    now; without it no certificate is. Whoever changes what these say calls `begin_generation`.
    """

    def __init__(
        self,
        credentials: Callable[[], ParsedCredentials],
        clock: Clock,
        *,
        accounts: TokenVerifier | None = None,
        trusts: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.generation = 1
        self._credentials = credentials
        self._clock = clock
        self._accounts = accounts
        self._trusts = trusts
        self._admitted: dict[bytes | CertificateCredential, AuthContext] = {}
        self._salt = secrets.token_bytes(16)

    def invalidate(self) -> None:
        """Something changed: nothing that was admitted before counts without being judged again."""
        self.generation += 1

    def authenticate(self, authorization: bytes | None, certificate: CertificateCredential | None) -> AuthContext:
        """See `poolmuster.ports.authenticator.Authenticator.authenticate`."""
        if authorization is None:
            if certificate is None:
                raise AuthenticationError(AuthFailure.MISSING, "no credentials")
            return self._cached(certificate) or self._cache(certificate, certificate)
        # As it comes with every heartbeat, so each call less counts; what is remembered was well-formed.
        admission = self._admitted.get(_digest(self._salt + authorization).digest())
        if admission is not None and self._is_valid(admission):
            return admission
        token = _token_of(authorization)
        key = _digest(self._salt + USUAL_SCHEME + token).digest()
        return self._cached(key) or self._cache(key, self._verify(token))

    def _cached(self, key: bytes | CertificateCredential) -> AuthContext | None:
        """Who was admitted by this before, judged again if need be: no signature is verified twice."""
        admission = self._admitted.get(key)
        if admission is None or self._is_valid(admission):
            return admission
        del self._admitted[key]
        assert admission.credential is not None, "who was admitted here has proved something"
        return self._cache(key, admission.credential)

    def _cache(self, key: bytes | CertificateCredential, proof: VerifiedCredential) -> AuthContext:
        admission = self._authorize(proof)
        if len(self._admitted) >= REMEMBERED:
            del self._admitted[next(iter(self._admitted))]
        self._admitted[key] = admission
        return admission

    def reauthenticate(self, admission: AuthContext) -> AuthContext:
        """See `poolmuster.ports.authenticator.Authenticator.reauthenticate`."""
        if self._is_valid(admission):
            return admission
        assert admission.credential is not None, "who was admitted here has proved something"
        return self._authorize(admission.credential)

    def _is_valid(self, admission: AuthContext) -> bool:
        return admission.generation == self.generation and (
            admission.expires_at_ms is None or self._clock.wall_ms() < admission.expires_at_ms
        )

    def _verify(self, token: bytes) -> VerifiedCredential:
        proof = TokenCredential(digest_of(token))
        if token.count(b".") != JWT_DOTS or proof.digest in self._credentials().tokens:
            return proof
        if self._accounts is None:
            raise AuthenticationError(
                AuthFailure.UNKNOWN_TOKEN, "it looks like a service account's token, and --auth-oidc is not set"
            )
        return self._accounts.verify(token.decode("ascii"), self._knows_account)

    def _knows_account(self, issuer: str, namespace: str, account: str) -> bool:
        wanted: Account = (issuer, namespace, account)
        return wanted in self._credentials().accounts

    def _authorize(self, proof: VerifiedCredential) -> AuthContext:
        known = self._credentials().known(proof)
        ends = [known.expires_at_ms] if known.expires_at_ms is not None else []
        name = known.principal.name
        if isinstance(proof, CertificateCredential):
            if self._trusts is None or not self._trusts(proof.trust_anchor):
                text = f"the authority of the certificate of {name!r} is not trusted any more"
                raise AuthenticationError(AuthFailure.UNTRUSTED_AUTHORITY, text)
            ends.append(proof.expires_at_ms)
        elif isinstance(proof, ServiceAccountCredential):
            if self._accounts is None or not self._accounts.holds(proof):
                raise AuthenticationError(
                    AuthFailure.UNKNOWN_KEY, f"the key that signed the token of {name!r} was withdrawn"
                )
            ends.append(proof.expires_at_ms)
        expires_at_ms = min(ends, default=None)
        if expires_at_ms is not None and self._clock.wall_ms() >= expires_at_ms:
            raise AuthenticationError(AuthFailure.EXPIRED, f"the credential of {name!r} has expired")
        return AuthContext(
            principal=known.principal, credential=proof, generation=self.generation, expires_at_ms=expires_at_ms
        )


def _token_of(authorization: bytes) -> bytes:
    """What the header presents, however its scheme is written. Raises `AuthenticationError`."""
    if authorization[: len(SCHEME)].lower() != SCHEME:
        raise AuthenticationError(AuthFailure.MALFORMED, "the Authorization header is not 'Bearer TOKEN'")
    token = authorization[len(SCHEME) :].strip(b" ")
    if _TOKEN.fullmatch(token) is None:
        raise AuthenticationError(AuthFailure.MALFORMED, "what follows 'Bearer' is not one word of visible ASCII")
    return token
