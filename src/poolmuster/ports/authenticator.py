"""Authentication of requests."""

from typing import Protocol

import msgspec

from poolmuster.model.auth import ANONYMOUS, CertificateCredential, Principal, VerifiedCredential


class AuthContext(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated principal and its ``credential``, ``None`` where no credentials are needed.

    It is valid while `Authenticator.generation` is ``generation``, and until ``expires_at_ms`` by the wall clock. After
    that `Authenticator.reauthenticate` returns a new one, if the credential is still accepted.
    """

    principal: Principal
    credential: VerifiedCredential | None = None
    generation: int = 0
    expires_at_ms: int | None = None


ANONYMOUS_CONTEXT = AuthContext(principal=ANONYMOUS)
"""The context of every request where no credentials are needed."""


class Authenticator(Protocol):
    """Authenticates requests. Every method returns at once and never calls out.

    ``generation`` grows whenever the accepted credentials, or the roles of a principal, change.
    """

    generation: int

    def authenticate(self, authorization: bytes | None, certificate: CertificateCredential | None) -> AuthContext:
        """The context of a request with this ``Authorization`` header, or else with this certificate.

        Where both are given only the header counts: it belongs to the request, the certificate to the connection.
        Raises `poolmuster.model.auth.AuthenticationError`.
        """
        ...

    def reauthenticate(self, context: AuthContext) -> AuthContext:
        """The context of the same credential as of now. Raises `poolmuster.model.auth.AuthenticationError`."""
        ...
