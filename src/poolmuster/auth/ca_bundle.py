"""Authorities: which ones a file names, and whether the one that vouched for a connection is still among them.

An authority is its subject and its public key, as verification sees it: a root that was issued again, with the same
key for more years, is the same authority. Pure functions over PEM and DER.
"""

from functools import lru_cache
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from poolmuster.model.errors import InvalidInput

UNREADABLE = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)
"""What the library raises for a certificate that it cannot read."""

ANCHORS_REMEMBERED = 256
"""There are as many as authorities in a file, and each vouches for thousands of connections."""


class CaBundle:
    """The authorities of one file. Holds only what is public."""

    __slots__ = ("_certificates", "_digests", "_vouched", "ders")

    def __init__(self, ders: tuple[bytes, ...]) -> None:
        self.ders = ders
        self._certificates = tuple(map(x509.load_der_x509_certificate, ders))
        self._digests = frozenset(map(_digest_of, self._certificates))
        self._vouched: dict[bytes, bool] = {}

    def trusts(self, anchor: bytes) -> bool:
        """Whether a chain that ends in ``anchor``, a certificate as DER, still ends in one of these authorities.

        It does where the anchor is one of them, or was issued by one of them: a file may name an intermediate today
        and its root tomorrow.
        """
        known = self._vouched.get(anchor)
        if known is None:
            known = self._judge(anchor)
            if len(self._vouched) < ANCHORS_REMEMBERED:
                self._vouched[anchor] = known
        return known

    def _judge(self, anchor: bytes) -> bool:
        try:
            certificate = x509.load_der_x509_certificate(anchor)
            if _digest_of(certificate) in self._digests:
                return True
        except UNREADABLE:
            return False
        return any(_issued(authority, certificate) for authority in self._certificates)


def read_authorities(pem: bytes) -> CaBundle:
    """The certificates in a file of one or many. Raises `InvalidInput`, also where there is none."""
    try:
        found = x509.load_pem_x509_certificates(pem)
        return CaBundle(tuple(each.public_bytes(Encoding.DER) for each in found))
    except UNREADABLE as error:
        raise InvalidInput("holds no certificates of authorities, or one that cannot be read") from error


@lru_cache(ANCHORS_REMEMBERED)
def intern(der: bytes) -> bytes:
    """One object for equal bytes, so that thousands of connections hold their anchor once."""
    return der


@lru_cache(ANCHORS_REMEMBERED)
def not_after_ms(der: bytes) -> int:
    """Until when a certificate counts, by the wall clock. Raises one of `UNREADABLE` where it cannot be read."""
    return round(x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp() * 1_000)


def _digest_of(certificate: x509.Certificate) -> bytes:
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    subject = certificate.subject.public_bytes()
    return sha256(len(subject).to_bytes(4, "big") + subject + key).digest()


def _issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
