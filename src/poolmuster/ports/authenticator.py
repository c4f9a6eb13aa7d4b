"""What tells who asks."""

from typing import Protocol

import msgspec

from poolmuster.model.auth import ANONYMOUS, CertificateCredential, Principal, VerifiedCredential


class AuthContext(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody was let in, by ``proof``; ``None`` where no credentials are wanted.

    It counts while the authenticator's `Authenticator.generation` is ``generation``, and until ``expires_at_ms`` by
    the wall clock. After that `Authenticator.reauthenticate` tells whether the proof still counts.
    """

    principal: Principal
    credential: VerifiedCredential | None = None
    generation: int = 0
    expires_at_ms: int | None = None


ANONYMOUS_CONTEXT = AuthContext(principal=ANONYMOUS)
"""The admission of everybody, where no credentials are wanted."""


class Authenticator(Protocol):
    """Tells who asks. Every method returns at once and never calls out.

    ``generation`` grows whenever who is known, or what they may do, changes.
    """

    generation: int

    def authenticate(self, authorization: bytes | None, certificate: CertificateCredential | None) -> AuthContext:
        """Who presents this ``Authorization`` header, or else this certificate.

        Where both are there the header alone counts: what was said last and aloud. Raises
        `poolmuster.model.auth.AuthenticationError`.
        """
        ...

    def reauthenticate(self, admission: AuthContext) -> AuthContext:
        """The same proof judged again by what is known now. Raises `poolmuster.model.auth.AuthenticationError`."""
        ...
