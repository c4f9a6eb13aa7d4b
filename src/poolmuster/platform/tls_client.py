"""Whom a client trusts and what it shows, from PEM files to contexts of TLS.

Certificates and keys are taken from bytes that were read already, so that a file which is being replaced is never half
in use.
"""

import os
import re
import ssl

from poolmuster.model.errors import InvalidInput
from poolmuster.platform.memfd import memfd

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)
_CERTIFICATES = (b"CERTIFICATE", b"X509 CERTIFICATE")
_KEY_LABEL_END = b"PRIVATE KEY"


def empty_context() -> ssl.SSLContext:
    """A context under which no server is accepted.

    Not `ssl.create_default_context`, which takes an empty file for none and then trusts what the system does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # An authority that is named here counts, whoever vouches for it, as in newer versions of Python by themselves.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def system_context() -> ssl.SSLContext:
    """A context that trusts whom ``SSL_CERT_FILE`` names, or else whom the system does. Raises `InvalidInput`."""
    # OpenSSL itself keeps silent about a file that is not there, and then trusts nobody.
    file = os.environ.get("SSL_CERT_FILE") or None
    try:
        context = ssl.create_default_context(cafile=file)
    except OSError as error:
        raise InvalidInput(f"SSL_CERT_FILE: {file} cannot be used: {error.strerror or error}.") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def parse_authorities(content: bytes) -> ssl.SSLContext:
    """A context that trusts the certificates of a PEM file, and no others. Raises `InvalidInput`."""
    certificates = b"\n".join(_blocks(content, *_CERTIFICATES))
    context = empty_context()
    try:
        context.load_verify_locations(cadata=certificates.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
        raise InvalidInput("holds no certificates in PEM form") from error
    return context


def parse_key_pair(certificate: bytes, key: bytes | None = None) -> bytes:
    """A client's certificate, with what lies between it and its authority, and its key, as one PEM text.

    Without ``key`` the certificate's file has to hold the key as well. Raises `InvalidInput`, which shows nothing of
    them.
    """
    keys = [block for label, block in _labelled(certificate if key is None else key) if label.endswith(_KEY_LABEL_END)]
    certificates = _blocks(certificate, *_CERTIFICATES)
    if not certificates:
        raise InvalidInput("there is no client certificate in PEM form")
    if not keys:
        raise InvalidInput("there is no key of the client certificate in PEM form")
    if b"ENCRYPTED" in keys[0]:
        raise InvalidInput("the key is encrypted, and nobody is there to give its password: one in the clear is wanted")
    pair = b"\n".join([keys[0], *certificates, b""])
    load_client_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair)
    return pair


def load_client_certificate(context: ssl.SSLContext, pair: bytes) -> None:
    """Let ``context`` show what `parse_key_pair` returned. Raises `InvalidInput`."""
    with memfd(pair) as path:
        try:
            context.load_cert_chain(path, password="")  # never ask on the terminal
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise InvalidInput("the key is not the client certificate's") from error
            raise InvalidInput("the client certificate or its key cannot be used") from error


def _labelled(content: bytes) -> list[tuple[bytes, bytes]]:
    return [(found.group(1), found.group()) for found in _BLOCK.finditer(content)]


def _blocks(content: bytes, *labels: bytes) -> list[bytes]:
    return [block for label, block in _labelled(content) if label in labels]
