"""Certificate authorities: those in a file, and whether the trust anchor of a connection is still one of them.

An authority is its subject and its public key, as in the verification of a chain: a root certificate that was issued
again for the same key, to be valid longer, is the same authority. Pure functions over PEM and DER.
"""

from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from poolmuster.model.errors import InvalidInput

UNREADABLE = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)
"""The errors of the library for a certificate that it cannot read."""

ANCHORS_CACHED = 256
"""There are as many anchors as authorities in a file, each for thousands of connections."""


class CaBundle:
    """The authorities of one file: ``ders`` are their certificates. Holds only what is public."""

    __slots__ = ("_certificates", "_identities", "_trusted", "ders")

    def __init__(self, ders: tuple[bytes, ...]) -> None:
        self.ders = ders
        self._certificates = tuple(map(x509.load_der_x509_certificate, ders))
        self._identities = frozenset(map(_identity, self._certificates))
        self._trusted: dict[bytes, bool] = {}

    def trusts(self, anchor: bytes) -> bool:
        """Whether a chain that ends in ``anchor``, a certificate as DER, is trusted.

        It is where the anchor is one of these authorities, or was issued by one of them: a file may name an
        intermediate authority today and its root tomorrow.
        """
        trusted = self._trusted.get(anchor)
        if trusted is None:
            trusted = self._verify(anchor)
            if len(self._trusted) < ANCHORS_CACHED:
                self._trusted[anchor] = trusted
        return trusted

    def _verify(self, anchor: bytes) -> bool:
        try:
            certificate = x509.load_der_x509_certificate(anchor)
            if _identity(certificate) in self._identities:
                return True
        except UNREADABLE:
            return False
        return any(_issued(authority, certificate) for authority in self._certificates)


def read_authorities(pem: bytes) -> CaBundle:
    """The certificates in a file of one or many. Raises `InvalidInput`, also where there is none."""
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        return CaBundle(tuple(each.public_bytes(Encoding.DER) for each in certificates))
    except UNREADABLE as error:
        raise InvalidInput("holds no certificates of authorities, or one that cannot be read") from error


@lru_cache(ANCHORS_CACHED)
def intern(der: bytes) -> bytes:
    """One object for equal bytes, so that thousands of connections share their anchor."""
    return der


@lru_cache(ANCHORS_CACHED)
def not_after_ms(der: bytes) -> int:
    """The end of a certificate's validity, by the wall clock. Raises one of `UNREADABLE`."""
    return round(x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp() * 1_000)


def _identity(certificate: x509.Certificate) -> tuple[bytes, bytes]:
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return certificate.subject.public_bytes(), key


def _issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
