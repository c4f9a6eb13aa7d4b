"""The credentials file: who is known, by what, and what each may do.

One line of TOML for each principal. It is known by exactly one of: ``sha256`` (of a bearer token), ``uri`` or ``dns``
(a name in its client certificate), ``service_account`` of an ``issuer``. Each may be a list, which is how a credential
is replaced without a gap: both the old and the new count until the old one is taken out.
"""

import json
import re
import tomllib
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from poolmuster.auth.tokens import PREFIX
from poolmuster.model.auth import (
    AuthenticationError,
    AuthFailure,
    CertificateCredential,
    Principal,
    Role,
    TokenCredential,
    VerifiedCredential,
    make_principal,
)
from poolmuster.model.errors import FieldError, InvalidInput

NAME_LIMIT = 128
NAMES_SHOWN = 300
DIGEST_HEX_DIGITS = 64

Account = tuple[str, str, str]
"""Issuer, namespace and name of a service account."""

K = TypeVar("K")
S = TypeVar("S", bound=str)

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class PrincipalEntry(msgspec.Struct, frozen=True):
    """A principal, and until when its line counts, in milliseconds since 1970."""

    principal: Principal
    expires_at_ms: int | None = None


class CredentialEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line as it stands."""

    roles: Role | tuple[Role, ...]
    sha256: str | tuple[str, ...] = ()
    uri: str | tuple[str, ...] = ()
    dns: str | tuple[str, ...] = ()
    service_account: str | tuple[str, ...] = ()
    issuer: str | None = None
    clusters: tuple[str, ...] = ()
    streams: int | None = None
    pools_per_cluster: int | None = None
    expires: datetime | None = None

    @property
    def dns_names(self) -> tuple[str, ...]:
        """All of ``dns``."""
        return _each(self.dns)

    def __repr__(self) -> str:
        return f"Line({', '.join(_each(self.roles))})"


class ParsedCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """The file, read: ``lines`` by name, and whom each credential belongs to. No repr shows a digest."""

    lines: dict[str, CredentialEntry]
    tokens: dict[bytes, PrincipalEntry]
    uris: dict[str, PrincipalEntry]
    dns_names: dict[str, PrincipalEntry]
    accounts: dict[Account, PrincipalEntry]

    def __repr__(self) -> str:
        counts = {name: len(getattr(self, name)) for name in self.__struct_fields__ if name != "lines"}
        return f"Credentials({', '.join(f'{count} {name}' for name, count in counts.items())})"

    def known(self, proof: VerifiedCredential) -> PrincipalEntry:
        """Whom ``proof`` belongs to. Raises `AuthenticationError`. Whether either has expired is not asked here."""
        if isinstance(proof, TokenCredential):
            known = self.tokens.get(proof.digest)
            missing = AuthFailure.UNKNOWN_TOKEN
            what = f"a token with the SHA-256 {proof.digest.hex()[:8]}..."
        elif isinstance(proof, CertificateCredential):
            known = self._certificate(proof)
            missing = AuthFailure.UNKNOWN_CERTIFICATE
            names = ", ".join((*proof.uris, *proof.dns_names))[:NAMES_SHOWN]
            what = (
                f"a certificate for {names}"
                if names
                else "a certificate without a URI or DNS name; others do not count"
            )
        else:
            known = self.accounts.get((proof.issuer, proof.namespace, proof.account))
            missing = AuthFailure.UNKNOWN_ACCOUNT
            what = f"the service account {proof.namespace}/{proof.account} of {proof.issuer}"
        if known is None:
            raise AuthenticationError(missing, f"no line is for {what}")
        return known

    def _certificate(self, proof: CertificateCredential) -> PrincipalEntry | None:
        """The first of its names that has a line: URIs before DNS names, in the certificate's order."""
        for uri in proof.uris:
            if (known := self.uris.get(uri)) is not None:
                return known
        for name in proof.dns_names:
            # Letters outside of ASCII may become others when they are made small.
            if name.isascii() and (known := self.dns_names.get(name.lower())) is not None:
                return known
        return None


def parse_credentials(content: bytes) -> ParsedCredentials:
    """Read the file. Raises `InvalidInput`, which names the line by its principal and shows no digest.

    A file without anything in it is refused, as it looks like one that is being written; one that is to let nobody in
    holds a comment.
    """
    if not content.strip():
        raise InvalidInput("is empty; a file that lets nobody in holds at least a comment")
    _check_no_token(content)
    try:
        lines = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"is not TOML in UTF-8 ({_where(error)})") from error
    found = ParsedCredentials(lines={}, tokens={}, uris={}, dns_names={}, accounts={})
    for name, line in lines.items():
        _take(found, name, line)
    return found


def credentials_line(
    name: str, *, sha256: str, roles: tuple[str, ...], clusters: tuple[str, ...] = (), expires: datetime | None = None
) -> str:
    """The line of a token, as `parse_credentials` reads it. Whether it makes sense is for that to say."""
    items = [f"sha256 = {_quoted(sha256)}", f"roles = {_quoted_list(roles)}"]
    if clusters:
        items.append(f"clusters = {_quoted_list(clusters)}")
    if expires is not None:
        items.append(f"expires = {expires.strftime('%Y-%m-%dT%H:%M:%SZ')}")
    key = name if _BARE_KEY.fullmatch(name) else _quoted(name)
    return f"{key} = {{{', '.join(items)}}}"


def _quoted(text: str) -> str:
    """A string of JSON is one of TOML, but for one character; and TOML knows no surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _quoted_list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _check_no_token(content: bytes) -> None:
    for number, line in enumerate(content.splitlines(), 1):
        if line.lstrip().startswith(PREFIX.encode()):
            raise InvalidInput(f"holds a token in line {number}: take it out, and replace that token by another")


def _where(error: Exception) -> str:
    """What is wrong, without the bytes that are: a decoder's own message shows them."""
    match error:
        case tomllib.TOMLDecodeError() if "overwrite" in str(error):
            return f'a name stands twice, {error}; two tokens of one holder stand in one line: sha256 = ["old", "new"]'
        case tomllib.TOMLDecodeError():
            return str(error)
        case UnicodeDecodeError():
            return "a byte is not"
        case RecursionError():
            return "it is nested too deeply"
    return "a number has too many digits"


def _take(found: ParsedCredentials, name: str, content: Any) -> None:
    line = found.lines[name] = _line(name, content)
    known = PrincipalEntry(
        make_principal(
            name, _each(line.roles), line.clusters, streams=line.streams, pools_per_cluster=line.pools_per_cluster
        ),
        None if line.expires is None else round(line.expires.timestamp() * 1000),
    )
    given = [bool(way) for way in (line.sha256, line.uri, line.dns, line.service_account)]
    if sum(given) != 1:
        raise _fault(name, "is known by exactly one of sha256, uri, dns and service_account")
    if (line.issuer is not None) != bool(line.service_account):
        raise _fault(name, "issuer and service_account are given together or not at all")
    for digest in _each(line.sha256):
        _put(found.tokens, _digest(name, digest), known)
    for uri in _each(line.uri):
        if ":" not in uri:
            raise _fault(name, f"{uri!r} is no URI")
        _put(found.uris, uri, known)
    for dns_name in line.dns_names:
        if not dns_name.isascii() or not dns_name:
            raise _fault(name, f"{dns_name!r} is not the DNS name in a certificate, which is in ASCII (xn--...)")
        _put(found.dns_names, dns_name.lower(), known)
    for account in _each(line.service_account):
        namespace, slash, account_name = account.partition("/")
        if not namespace or not slash or not account_name or "/" in account_name:
            raise _fault(name, f"{account!r} is not NAMESPACE/NAME")
        _put(found.accounts, (line.issuer or "", namespace, account_name), known)


def _line(name: str, content: Any) -> CredentialEntry:
    if not name.strip() or len(name) > NAME_LIMIT or not name.isprintable():
        raise InvalidInput(f"has a name that is empty, over {NAME_LIMIT} characters, or not printable: {name[:40]!a}")
    if not isinstance(content, dict):
        raise _fault(name, "is {...}, with what it is known by and its roles")
    try:
        line = msgspec.convert(content, CredentialEntry)
    except msgspec.ValidationError as error:
        raise _fault(name, f"{error}{_hint(str(error))}") from error
    _check_roles(name, line)
    for bound in ("streams", "pools_per_cluster"):
        if (value := getattr(line, bound)) is not None and value < 1:
            raise _fault(name, f"{bound} is a whole number above zero")
    if line.expires is not None and line.expires.tzinfo is None:
        raise _fault(name, "expires has no time zone; write it as in 2030-01-31T00:00:00Z")
    return line


def _hint(fault: str) -> str:
    """What would do, where the decoder's words leave that open."""
    if "enum value" in fault:
        return f"; roles are {', '.join(Role)}"
    if "unknown field" in fault:
        return f"; known are {', '.join(CredentialEntry.__struct_fields__)}"
    return "; write it as in 2030-01-31T00:00:00Z" if "datetime" in fault else ""


def _check_roles(name: str, line: CredentialEntry) -> None:
    roles = _each(line.roles)
    if not roles:
        raise _fault(name, "has no role")
    registers = Role.REGISTER in roles
    if registers and not line.clusters:
        raise _fault(name, 'may register, so clusters says for which; ["*"] is all')
    if line.clusters and not registers:
        raise _fault(name, "has clusters without the role register")
    if "" in line.clusters:
        raise _fault(name, "has an empty pattern among its clusters")


def _each(given: S | tuple[S, ...]) -> tuple[S, ...]:
    return given if isinstance(given, tuple) else (given,)


def _digest(name: str, text: str) -> bytes:
    """The value is never shown: where a token was pasted in the place of its digest, it would be in the log."""
    try:
        digest = bytes.fromhex(text) if len(text) == DIGEST_HEX_DIGITS else b""
    except ValueError:
        digest = b""
    if len(digest) * 2 != DIGEST_HEX_DIGITS:
        pasted = "; it is a token itself, which should be replaced now" if text.startswith(PREFIX) else ""
        raise _fault(name, f"sha256 is not the SHA-256 of a token in {DIGEST_HEX_DIGITS} hexadecimal digits{pasted}")
    return digest


def _put(known_by: dict[K, PrincipalEntry], key: K, known: PrincipalEntry) -> None:
    if (other := known_by.get(key)) is not None:
        names = f"{other.principal.name!r} and {known.principal.name!r}"
        raise InvalidInput(f"has the same credential twice, for {names}")
    known_by[key] = known


def _fault(name: str, what: str) -> InvalidInput:
    return InvalidInput("has a line that cannot be used:", (FieldError(name, what),))
