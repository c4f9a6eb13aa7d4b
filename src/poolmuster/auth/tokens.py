"""Bearer tokens: 256 random bits, of which only the SHA-256 is kept."""

import hashlib
import secrets

PREFIX = "pmt_"
"""So that whoever looks for secrets in places where none should be finds these."""

TOKEN_BYTES = 32


def new_token() -> str:
    """A token that nobody has guessed."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest_of(token: bytes) -> bytes:
    """What the credentials file knows of a token. It needs no slow hash: there is nothing to guess from."""
    return hashlib.sha256(token).digest()
