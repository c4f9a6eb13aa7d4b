"""Where the signing keys of an issuer come from."""

from collections.abc import Callable
from urllib.parse import urlsplit

from poolmuster.auth.jwks import FileKeySet, KeySet, _noop
from poolmuster.auth.jwks_url import UrlKeySet
from poolmuster.model.address import Address
from poolmuster.model.errors import InvalidInput
from poolmuster.ports.clock import Clock


def check_key_url(url: str) -> None:
    """Whether keys can be trusted that come from there. Raises `InvalidInput`."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput(f"{url!r} is no URL: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("the URL of a key set holds no user and no password; a token comes from a file")
    if parts.scheme not in {"https", "http"} or not host or parts.fragment or not url.isascii() or " " in url:
        raise InvalidInput(f"{url!r} is not the https URL of a key set")
    if parts.scheme == "http" and not Address(host, 0).is_loopback:
        raise InvalidInput(f"{url!r}: whoever is on the way could put in keys of their own; only https will do")


def open_key_set(
    issuer: str,
    source: str,
    clock: Clock,
    on_withdrawal: Callable[[], None] = _noop,
    *,
    refresh_ms: int = 1_000,
    ca_file: str | None = None,
    token_file: str | None = None,
) -> KeySet:
    """The keys of ``issuer`` from ``source``: a URL, or the path of a file. Raises `InvalidInput`."""
    if "://" not in source:
        return FileKeySet(issuer, source, clock, on_withdrawal)
    check_key_url(source)
    return UrlKeySet(
        issuer, source, clock, on_withdrawal, refresh_ms=refresh_ms, ca_file=ca_file, token_file=token_file
    )
