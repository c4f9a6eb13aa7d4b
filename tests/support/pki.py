"""Certificate authorities for tests: roots, intermediates, and certificates of any name and any time.

    authority = Authority()
    server = authority.server("localhost", "127.0.0.1")
    paths = server.write(tmp_path, "server")
    context.load_cert_chain(paths.cert, paths.key)
    client = authority.client(uris=["spiffe://prod.example/ns/a/sa/relay"])

Names that are IP addresses become IP names. Times are instants in UTC; what is not given has begun an hour ago and
ends in a day.
"""

import datetime as dt
import os
import ssl
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Self

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOUR = dt.timedelta(hours=1)
DAY = 24 * HOUR

Usage = x509.ObjectIdentifier
SERVER_AUTH: Usage = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT_AUTH: Usage = ExtendedKeyUsageOID.CLIENT_AUTH


def from_now(delta: dt.timedelta) -> dt.datetime:
    """An instant relative to now, which may be in the past."""
    return dt.datetime.now(dt.UTC) + delta


class PairPaths(msgspec.Struct, frozen=True):
    """Where a certificate with its chain, and its key, were written."""

    cert: str
    key: str


class Issued(msgspec.Struct, frozen=True):
    """A certificate, the intermediates between it and its root, and its key."""

    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        """The certificate and its intermediates."""
        return b"".join(map(pem_of, (self.certificate, *self.chain)))

    @property
    def key_pem(self) -> bytes:
        """The key, not encrypted."""
        return self.encoded_key(serialization.NoEncryption())

    def encoded_key(self, encryption: serialization.KeySerializationEncryption) -> bytes:
        """The key as PEM, encrypted as told."""
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)

    @property
    def der(self) -> bytes:
        """The certificate alone."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def write(self, folder: Path, name: str = "pair") -> PairPaths:
        """Write ``NAME.pem`` and ``NAME.key``, each replaced as a whole. Once more replaces them."""
        return PairPaths(
            replace_file(folder / f"{name}.pem", self.cert_pem), replace_file(folder / f"{name}.key", self.key_pem)
        )


class Authority:
    """A certificate authority: a root, or with ``parent`` one that it vouches for."""

    def __init__(
        self,
        name: str = "Test authority",
        *,
        parent: Self | None = None,
        not_before: dt.datetime | None = None,
        not_after: dt.datetime | None = None,
    ) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = _subject(name)
        self._parent = parent
        builder = _builder(self.subject, self.key.public_key(), not_before, not_after or from_now(10 * DAY))
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = (parent or self)._sign(builder.add_extension(usage, critical=True))

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return pem_of(self.certificate)

    @property
    def der(self) -> bytes:
        """Its certificate."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def write(self, folder: Path, name: str = "ca") -> str:
        """Write its certificate as ``NAME.pem``, replaced as a whole. Returns the path."""
        return replace_file(folder / f"{name}.pem", self.pem)

    def intermediate(self, name: str = "Test intermediate") -> "Authority":
        """An authority below this one. What it issues bears its certificate in the chain."""
        return Authority(name, parent=self)

    def server(
        self,
        *names: str,
        not_before: dt.datetime | None = None,
        not_after: dt.datetime | None = None,
    ) -> Issued:
        """A server's certificate for these DNS names and IP addresses."""
        return self.issue(names, usages=[SERVER_AUTH], not_before=not_before, not_after=not_after)

    def client(
        self,
        *names: str,
        uris: Iterable[str] = (),
        not_before: dt.datetime | None = None,
        not_after: dt.datetime | None = None,
    ) -> Issued:
        """A client's certificate with these DNS names, IP addresses and URIs."""
        return self.issue(names, uris=uris, usages=[CLIENT_AUTH], not_before=not_before, not_after=not_after)

    def issue(
        self,
        names: Iterable[str] = (),
        *,
        uris: Iterable[str] = (),
        usages: Iterable[Usage] = (SERVER_AUTH, CLIENT_AUTH),
        not_before: dt.datetime | None = None,
        not_after: dt.datetime | None = None,
    ) -> Issued:
        """A certificate with these subject alternative names; none where there is no name."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject("Test certificate"), key.public_key(), not_before, not_after)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
        alternatives = [*map(_general_name, names), *map(x509.UniformResourceIdentifier, uris)]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return Issued(self._sign(builder), tuple(self._chain()), key)

    def _chain(self) -> Iterable[x509.Certificate]:
        """The certificates from this authority up to its root, without the root's."""
        if self._parent is not None:
            yield self.certificate
            yield from self._parent._chain()

    def _sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.issuer_name(self.subject).add_extension(identifier, critical=False)
        return builder.sign(self.key, hashes.SHA256())


def pem_of(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def of_no_version(der: bytes) -> bytes:
    """A certificate as PEM, changed to be of a version of X.509 that there is not."""
    version = b"\xa0\x03\x02\x01\x02"  # the third, which comes first of all
    return ssl.DER_cert_to_PEM_cert(der.replace(version, version[:-1] + b"\x06", 1)).encode()


def replace_file(path: Path, content: bytes) -> str:
    """Write a file so that nobody ever reads it half. Returns its path."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(content)
    os.replace(fresh, path)  # noqa: PTH105 - as a deployment does it
    return str(path)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    not_before: dt.datetime | None,
    not_after: dt.datetime | None,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before or from_now(-HOUR))
        .not_valid_after(not_after or from_now(DAY))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
