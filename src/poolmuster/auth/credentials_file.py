"""The credentials file: the principals of a service, the credentials of each, and what each may do.

One line of TOML for each principal, with exactly one kind of credential: ``sha256`` (of a bearer token), ``uri`` or
``dns`` (a name in a client certificate), or ``service_account`` of an ``issuer``. Each may be a list, to replace a
credential without a gap: the old and the new one count until the old one is removed.
"""

import hashlib
import json
import re
import secrets
import tomllib
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Annotated, TypeVar

import msgspec

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

PREFIX = "pmt_"
"""Begins every token, so that scanners for secrets can find one."""

TOKEN_BYTES = 32
NAME_LIMIT = 128
NAMES_SHOWN = 300

Account = tuple[str, str, str]
"""Issuer, namespace and name of a service account."""

K = TypeVar("K")
S = TypeVar("S", bound=str)
_Bound = Annotated[int, msgspec.Meta(ge=1)]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")


def new_token() -> str:
    """A random bearer token."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest_of(token: bytes) -> bytes:
    """The SHA-256 of a token. A slow hash is not needed: 256 random bits cannot be guessed."""
    return hashlib.sha256(token).digest()


class PrincipalEntry(msgspec.Struct, frozen=True):
    """A principal, and the end of its line's validity in milliseconds since 1970."""

    principal: Principal
    expires_at_ms: int | None = None


class CredentialEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of the file."""

    roles: Role | Annotated[tuple[Role, ...], msgspec.Meta(min_length=1)]
    sha256: str | tuple[str, ...] = ()
    uri: str | tuple[str, ...] = ()
    dns: str | tuple[str, ...] = ()
    service_account: str | tuple[str, ...] = ()
    issuer: str | None = None
    clusters: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    streams: _Bound | None = None
    pools_per_cluster: _Bound | None = None
    expires: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def __post_init__(self) -> None:
        if Role.REGISTER in _each(self.roles) and not self.clusters:
            raise ValueError('the role register needs clusters; ["*"] means all')
        if self.clusters and Role.REGISTER not in _each(self.roles):
            raise ValueError("clusters are given without the role register")
        if [bool(each) for each in (self.sha256, self.uri, self.dns, self.service_account)].count(True) != 1:
            raise ValueError("exactly one of sha256, uri, dns and service_account is needed")
        if (self.issuer is not None) != bool(self.service_account):
            raise ValueError("issuer and service_account are given together or not at all")

    def __repr__(self) -> str:
        return f"CredentialEntry({', '.join(_each(self.roles))})"


class ParsedCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file: ``lines`` by name, and principals by their credentials. No ``repr`` shows a digest."""

    lines: dict[str, CredentialEntry]
    tokens: dict[bytes, PrincipalEntry]
    uris: dict[str, PrincipalEntry]
    dns_names: dict[str, PrincipalEntry]
    accounts: dict[Account, PrincipalEntry]

    def __repr__(self) -> str:
        counts = (f"{len(getattr(self, name))} {name}" for name in self.__struct_fields__ if name != "lines")
        return f"ParsedCredentials({', '.join(counts)})"

    def find(self, credential: VerifiedCredential) -> PrincipalEntry:
        """The principal with ``credential``. Raises `AuthenticationError`. Does not check that either has expired."""
        if isinstance(credential, TokenCredential):
            entry = self.tokens.get(credential.digest)
            failure = AuthFailure.UNKNOWN_TOKEN
            what = f"a token with the SHA-256 {credential.digest.hex()[:8]}..."
        elif isinstance(credential, CertificateCredential):
            entry = self._find_certificate(credential)
            failure = AuthFailure.UNKNOWN_CERTIFICATE
            names = ", ".join((*credential.uris, *credential.dns_names))[:NAMES_SHOWN]
            unnamed = "a certificate without a URI or DNS name; others do not count"
            what = f"a certificate for {names}" if names else unnamed
        else:
            entry = self.accounts.get((credential.issuer, credential.namespace, credential.account))
            failure = AuthFailure.UNKNOWN_ACCOUNT
            what = f"the service account {credential.namespace}/{credential.account} of {credential.issuer}"
        if entry is None:
            raise AuthenticationError(failure, f"no line is for {what}")
        return entry

    def _find_certificate(self, certificate: CertificateCredential) -> PrincipalEntry | None:
        """By the first name that has a line: URIs before DNS names, in the certificate's order."""
        found = [self.uris.get(uri) for uri in certificate.uris]
        # Lower case of a letter outside of ASCII may be a letter of ASCII.
        found += [self.dns_names.get(name.lower()) for name in certificate.dns_names if name.isascii()]
        return next((entry for entry in found if entry is not None), None)


def parse_credentials(content: bytes) -> ParsedCredentials:
    """Parse the file. Raises `InvalidInput`, which names the principal of a bad line and shows no digest.

    An empty file is refused: it may be in the middle of a write. A file without principals holds a comment.
    """
    if not content.strip():
        raise InvalidInput("is empty; a file without principals holds at least a comment")
    for number, line in enumerate(content.splitlines(), 1):
        if line.lstrip().startswith(PREFIX.encode()):
            raise InvalidInput(f"holds a token in line {number}: remove it, and replace that token by another")
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        is_plain = isinstance(error, tomllib.TOMLDecodeError | UnicodeDecodeError)
        problem = str(error) if is_plain else "it is nested too deeply, or a number has too many digits"
        raise InvalidInput(f"is not TOML in UTF-8 ({problem}{_hint(problem)})") from error
    parsed = ParsedCredentials(lines={}, tokens={}, uris={}, dns_names={}, accounts={})
    for name, value in document.items():
        if not name.strip() or len(name) > NAME_LIMIT or not name.isprintable():
            raise InvalidInput(f"has a name over {NAME_LIMIT} characters, empty, or not printable: {name[:40]!a}")
        try:
            _add(parsed, name, msgspec.convert(value, CredentialEntry))
        except (msgspec.ValidationError, ValueError) as error:
            fault = FieldError(name, f"{error}{_hint(str(error))}")
            raise InvalidInput("has a line that cannot be used:", (fault,)) from error
    return parsed


def _hint(fault: str) -> str:
    """What is expected, where the message of a decoder does not say it."""
    if "overwrite" in fault:
        return '; two tokens of one principal stand in one line: sha256 = ["old", "new"]'
    if "`object`" in fault:
        return '; write it as in {sha256 = "...", roles = ["read"]}'
    if "enum value" in fault:
        return f"; roles are {', '.join(Role)}"
    if "unknown field" in fault:
        return f"; known are {', '.join(CredentialEntry.__struct_fields__)}"
    return "; write it as in 2030-01-31T00:00:00Z" if "datetime" in fault else ""


def _add(parsed: ParsedCredentials, name: str, line: CredentialEntry) -> None:
    """Add a line. Raises `ValueError` for a credential that is malformed, and `InvalidInput` for one that is known."""
    parsed.lines[name] = line
    principal = make_principal(
        name, _each(line.roles), line.clusters, streams=line.streams, pools_per_cluster=line.pools_per_cluster
    )
    entry = PrincipalEntry(principal, None if line.expires is None else round(line.expires.timestamp() * 1000))
    for text in _each(line.sha256):
        _put(parsed.tokens, _parse_digest(text), entry)
    for uri in _each(line.uri):
        if ":" not in uri:
            raise ValueError(f"{uri!r} is no URI")
        _put(parsed.uris, uri, entry)
    for dns_name in _each(line.dns):
        if not dns_name.isascii() or not dns_name:
            raise ValueError(f"{dns_name!r} is not the DNS name in a certificate, which is in ASCII (xn--...)")
        _put(parsed.dns_names, dns_name.lower(), entry)
    for account in _each(line.service_account):
        namespace, _, account_name = account.partition("/")
        if not namespace or not account_name or "/" in account_name:
            raise ValueError(f"{account!r} is not NAMESPACE/NAME")
        _put(parsed.accounts, (line.issuer or "", namespace, account_name), entry)


def _each(given: S | tuple[S, ...]) -> tuple[S, ...]:
    return given if isinstance(given, tuple) else (given,)


def _parse_digest(text: str) -> bytes:
    """No message shows ``text``, which may be the token itself, pasted in the place of its digest."""
    if _DIGEST.fullmatch(text) is None:
        pasted = "; it is a token itself, which should be replaced now" if text.startswith(PREFIX) else ""
        raise ValueError(f"sha256 is not the SHA-256 of a token in 64 hexadecimal digits{pasted}")
    return bytes.fromhex(text)


def _put(entries: dict[K, PrincipalEntry], key: K, entry: PrincipalEntry) -> None:
    if (other := entries.get(key)) is not None:
        names = f"{other.principal.name!r} and {entry.principal.name!r}"
        raise InvalidInput(f"has the same credential twice, for {names}")
    entries[key] = entry


def credentials_line(
    name: str, *, sha256: str, roles: tuple[str, ...], clusters: tuple[str, ...] = (), expires: datetime | None = None
) -> str:
    """The line for a token. Only `parse_credentials` checks that it makes sense."""
    items = [f"sha256 = {_quoted(sha256)}", f"roles = [{', '.join(map(_quoted, roles))}]"]
    if clusters:
        items.append(f"clusters = [{', '.join(map(_quoted, clusters))}]")
    if expires is not None:
        items.append(f"expires = {expires.strftime('%Y-%m-%dT%H:%M:%SZ')}")
    key = name if _BARE_KEY.fullmatch(name) else _quoted(name)
    return f"{key} = {{{', '.join(items)}}}"


def _quoted(text: str) -> str:
    """A string of JSON is one of TOML, but for one character; and TOML has no surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def changes(before: ParsedCredentials, after: ParsedCredentials) -> dict[str, list[str]]:
    """The names of principals that a reload added, removed or changed."""
    both = after.lines.keys() & before.lines.keys()
    return {
        "added": sorted(after.lines.keys() - before.lines.keys()),
        "removed": sorted(before.lines.keys() - after.lines.keys()),
        "changed": sorted(name for name in both if after.lines[name] != before.lines[name]),
    }


def warnings(
    credentials: ParsedCredentials, *, issuers: Collection[str], certificates: bool, now_ms: int
) -> Iterator[tuple[str, str]]:
    """Names of principals, or issuers, whose credentials cannot be used as things are, each with the reason.

    ``issuers`` are those whose tokens are accepted, ``certificates`` says whether certificates are, ``now_ms`` is the
    wall clock.
    """
    for name, line in credentials.lines.items():
        if line.expires is not None and line.expires.timestamp() * 1000 <= now_ms:
            yield name, f"it has expired, at {line.expires.isoformat()}"
        if (line.uri or line.dns) and not certificates:
            yield name, "its credential is a certificate, and --tls-client-ca is not set"
        if line.issuer is not None and line.issuer not in issuers:
            yield name, f"no --auth-oidc is for its issuer {line.issuer!r}"
        if any("*" in dns_name for dns_name in _each(line.dns)):
            yield name, "names of certificates are compared whole: a * in dns stands for nothing but itself"
    named = {line.issuer for line in credentials.lines.values()}
    for issuer in issuers:
        if issuer not in named:
            yield issuer, "it is an issuer of --auth-oidc, and no line names it"
