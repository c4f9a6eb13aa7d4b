"""The certificate authorities of a PEM file, as what a client trusts."""

import ssl

from poolmuster.model.errors import InvalidInput


def parse_authorities(content: bytes) -> ssl.SSLContext:
    """A client's context that trusts the certificates of a PEM file, and no others. Raises `InvalidInput`.

    Not by `ssl.create_default_context`, which takes an empty file for none and then trusts what the system does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
        raise InvalidInput("holds no certificates in PEM form") from error
    return context
