"""The certificate, key and authorities that TLS is set up with, and the TLS side of a connection.

Where clients authenticate by certificate, no session is ever resumed: that would skip the verification.
With TLS 1.3 it is enough to send no ticket. TLS 1.2 resumes from a cache of the context that Python gives no way to
turn off, so it is not spoken then.
"""

import asyncio
import contextlib
import fcntl
import socket
import ssl
import sys
import termios
from datetime import datetime
from functools import cached_property
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from poolmuster.auth.ca_bundle import UNREADABLE, CaBundle, intern, not_after_ms, read_authorities
from poolmuster.model.auth import CertificateCredential
from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import WatchedFiles
from poolmuster.platform.memfd import memfd

SO_NWRITE = 0x1024
"""A socket option of macOS, whose sockets have no ``TIOCOUTQ``."""


class ServerTls:
    """One reading of the files: a certificate with its chain, its key, and the authorities of the clients.

    ``not_before_ms`` and ``not_after_ms`` bound the certificate, by the wall clock. ``authorities`` is ``None`` where
    clients are not asked for certificates.
    """

    def __init__(self, chain: bytes, key: bytes, authorities: CaBundle | None = None) -> None:
        """Raises `InvalidInput` where a server cannot use these."""
        self._chain = chain
        self._key = key
        self.authorities = authorities
        leaf = _leaf_of(chain)
        _check_key(key, leaf)
        self.not_before_ms = _ms(leaf.not_valid_before_utc)
        self.not_after_ms = _ms(leaf.not_valid_after_utc)
        self.context = self._build()

    def notice(self, now_ms: int) -> str | None:
        """What is wrong with the certificate's time, by the wall clock. A warning: only its clients can refuse it."""
        if now_ms >= self.not_after_ms:
            return "the certificate of this server has expired"
        if now_ms < self.not_before_ms:
            return "the certificate of this server is not valid yet"
        return None

    def _build(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        asks = self.authorities is not None
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if asks else ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        try:
            with memfd(self._chain) as chain_path, memfd(self._key) as key_path:
                context.load_cert_chain(chain_path, key_path, password="")
        except OSError as error:  # of OpenSSL's, or where no more files may be open
            raise InvalidInput(f"the certificate and its key cannot be used: {_why(error)}") from error
        if self.authorities is not None:
            _trust(context, self.authorities)
        return context


class TlsFiles:
    """A certificate with its key, and the authorities of the clients, each as of its last good reading.

    A certificate and its key are taken together. The authorities are read by themselves: whoever is trusted no more is
    not to go on because a certificate cannot be read. Raises `InvalidInput`, which names the file and never shows what
    is in it.
    """

    def __init__(self, chain_path: str, key_path: str, client_ca_path: str | None = None) -> None:
        self.pair: WatchedFiles[tuple[bytes, bytes]] = WatchedFiles((chain_path, key_path), _usable_pair)
        self.client_ca: WatchedFiles[CaBundle] | None = None
        if client_ca_path is not None:
            self.client_ca = WatchedFiles((client_ca_path,), _usable_authorities)
        self._built_from: tuple[object, object] = (None, None)
        self._built: ServerTls | None = None

    def current(self) -> ServerTls:
        """For the next handshake, by the last good readings."""
        authorities = None if self.client_ca is None else self.client_ca.value
        if self._built is None or self._built_from != (self.pair.value, authorities):
            self._built = ServerTls(*self.pair.value, authorities)
            self._built_from = (self.pair.value, authorities)
        return self._built


def _usable_pair(chain: bytes, key: bytes) -> tuple[bytes, bytes]:
    ServerTls(chain, key)
    return chain, key


def _usable_authorities(pem: bytes) -> CaBundle:
    authorities = read_authorities(pem)
    _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), authorities)
    return authorities


def _trust(context: ssl.SSLContext, authorities: CaBundle) -> None:
    """Nothing else is ever trusted: the system's authorities are loaded by those who ask for them."""
    try:
        context.load_verify_locations(cadata=b"".join(authorities.ders))
    except ssl.SSLError as error:
        raise InvalidInput(f"the authorities of the clients cannot be used: {_why(error)}") from error
    context.verify_mode = ssl.CERT_OPTIONAL
    # A file may name an intermediate alone: then those that it issued count, and others of its root do not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


class TlsConnection:
    """The TLS side of one connection.

    ``sock`` is its socket, which ``transport`` closes; ``asks`` is whether its client was asked for a certificate.
    """

    def __init__(self, sock: socket.socket, transport: asyncio.Transport, *, asks: bool) -> None:
        self.asks = asks
        self._sock = sock
        self._transport = transport

    @cached_property
    def certificate(self) -> CertificateCredential | None:
        """The client's proof by certificate, if it presented one."""
        names = self._transport.get_extra_info("peercert")
        if not names:
            return None
        chain = verified_chain(self._transport.get_extra_info("ssl_object"))
        try:
            expires_at_ms = min([_leaf_ends_ms(names), *(not_after_ms(intern(each)) for each in chain[1:])])
        except UNREADABLE:
            return None  # OpenSSL could read it, the library that judges it here cannot: then it proves nothing
        alternatives = names.get("subjectAltName", ())
        return CertificateCredential(
            uris=tuple(value for kind, value in alternatives if kind == "URI"),
            dns_names=tuple(value for kind, value in alternatives if kind == "DNS"),
            trust_anchor=intern(chain[-1]),
            expires_at_ms=expires_at_ms,
        )

    def unsent_bytes(self) -> int:
        """Bytes in the kernel that the client's kernel has not acknowledged.

        While asyncio holds encrypted bytes, which its interface does not show, so does the kernel.
        """
        if self._sock.fileno() < 0:
            return 0
        if sys.platform == "darwin":
            return self._sock.getsockopt(socket.SOL_SOCKET, SO_NWRITE)
        return int.from_bytes(fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def disconnect(self) -> None:
        """End the connection, also where its transport was closed twice: asyncio's then ignores an abort."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def verified_chain(ssl_object: Any) -> list[bytes]:
    """The chain that the handshake verified, as DER: the client's certificate first, the anchor last."""
    if hasattr(ssl_object, "get_verified_chain"):
        return list(ssl_object.get_verified_chain())
    # Python 3.11 and 3.12 have it under the surface only, as objects of their own.
    inner = ssl_object._sslobj  # noqa: SLF001
    return [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in inner.get_verified_chain()]


def _leaf_ends_ms(names: Any) -> int:
    return ssl.cert_time_to_seconds(names["notAfter"]) * 1_000


def _leaf_of(chain: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(chain)[0]
    except UNREADABLE as error:
        raise InvalidInput("the certificate is no PEM, or cannot be read") from error


def _check_key(key: bytes, leaf: x509.Certificate) -> None:
    try:
        public = load_pem_private_key(key, None).public_key()
        of_leaf = leaf.public_key()
    except TypeError as error:
        raise InvalidInput("the key is encrypted; nobody is there to type its password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput("the key is no PEM, or cannot be read") from error
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if public.public_bytes(*form) != of_leaf.public_bytes(*form):
        raise InvalidInput("the key does not belong to the certificate")


def _why(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return reason or type(error).__name__


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000)
