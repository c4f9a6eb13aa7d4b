"""What tells who asks."""

from typing import Protocol

import msgspec

from poolmuster.model.access import ANYONE, CertificateProof, Principal, Proof


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody was let in, by ``proof``; ``None`` where no credentials are wanted.

    It counts while the authenticator's `Authenticator.generation` is ``generation``, and until ``expires_at_ms`` by
    the wall clock. After that `Authenticator.renew` tells whether the proof still counts.
    """

    principal: Principal
    proof: Proof | None = None
    generation: int = 0
    expires_at_ms: int | None = None


UNASKED = Admission(principal=ANYONE)
"""The admission of everybody, where no credentials are wanted."""


class Authenticator(Protocol):
    """Tells who asks. Every method returns at once and never calls out.

    ``generation`` grows whenever who is known, or what they may do, changes.
    """

    generation: int

    def admit(self, authorization: bytes | None, certificate: CertificateProof | None) -> Admission:
        """Who presents this ``Authorization`` header, or else this certificate.

        Where both are there the header alone counts: what was said last and aloud. Raises
        `poolmuster.model.access.NotProved`.
        """
        ...

    def renew(self, admission: Admission) -> Admission:
        """The same proof judged again by what is known now. Raises `poolmuster.model.access.NotProved`."""
        ...
