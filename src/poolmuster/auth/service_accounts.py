"""Kubernetes service accounts, authenticated by the tokens that their clusters sign.

A token is a JSON Web Token (RFC 7519, in the compact form of RFC 7515), parsed strictly: base64url that is not
canonical, duplicate members and invalid numbers are refused. A key, or the place of one, in its header is ignored.

PyJWT reads keys and verifies signatures (`poolmuster.auth.jwk`). Its checks of claims are not used: they come after the
signature, by the system clock, and on JSON with duplicate members.
"""

import contextlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Annotated, Any

import msgspec

from poolmuster.auth.jwk import ALGORITHMS, KEY_ID_LIMIT, SigningKey
from poolmuster.auth.jwks import KeySet
from poolmuster.auth.rate_limit import REJECTED_LIMIT, LatestEntries, VerificationBudget
from poolmuster.model import strict_json
from poolmuster.model.auth import AuthenticationError, AuthFailure, ServiceAccountCredential
from poolmuster.model.errors import InvalidInput
from poolmuster.ports.clock import Clock

TOKEN_LIMIT = 4 * 1024
"""In characters. Kubernetes' own take 1,000 to 1,500."""

MEMBERS_LIMIT = 48
"""Members, elements and containers of a header or a payload, so that parsing an unverified token costs little."""

CLOCK_SLACK_MS = 5_000
"""How far an issuer's clock may be ahead. A token is not accepted longer for it."""

UID_LIMIT = 128
ISSUER_SHOWN = 100

_FORM = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")
"""The signature may be empty: the algorithm "none" is reported as such."""

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAMESPACE = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SUBJECT = re.compile(rf"system:serviceaccount:({_NAMESPACE}):(?=.{{1,253}}\Z)({_LABEL}(?:\.{_LABEL})*)")
"""In the forms of Kubernetes: a namespace is a DNS label, an account's name a DNS subdomain."""

_Instant = Annotated[float, msgspec.Meta(ge=0, lt=253_402_300_800)]
"""A NumericDate in seconds, before the year 10000."""

IsKnownAccount = Callable[[str, str, str], bool]
"""Whether the credentials file has an issuer's namespace and account."""


class _Claims(msgspec.Struct):
    iss: str
    exp: _Instant
    sub: Any = None
    aud: str | tuple[str, ...] | None = ()
    nbf: _Instant = 0
    iat: _Instant = 0
    kubernetes: Any = msgspec.field(name="kubernetes.io", default=None)


class ServiceAccountToken(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed token, not verified yet. Instants are in milliseconds since 1970.

    ``pod_uid`` is the UID of the pod that the token is bound to, if any.
    """

    issuer: str
    namespace: str
    account: str
    audiences: tuple[str, ...]
    expires_at_ms: int
    begins_at_ms: int
    pod_uid: str | None
    key_id: str
    algorithm: str
    signed: bytes
    signature: bytes

    @property
    def subject(self) -> str:
        """The account, for people."""
        return f"{self.namespace}/{self.account} of {self.issuer}"

    def __repr__(self) -> str:
        return f"ServiceAccountToken({self.issuer!a}, {self.namespace}/{self.account})"


class ServiceAccounts:
    """Verifies tokens of ``issuers`` for ``audience``, by the keys that each issuer's set holds now.

    All checks that need no signature come first, so that a signature is verified only where everything else fits.

    ``verifications``, ``wrong_signatures`` and ``throttled`` (refused after too many wrong ones) are for metrics.
    """

    def __init__(
        self, issuers: Mapping[str, KeySet], audience: str, clock: Clock, budget: VerificationBudget | None = None
    ) -> None:
        self.issuers = issuers
        self.verifications = 0
        self.wrong_signatures = 0
        self.throttled = 0
        self._audience = audience
        self._clock = clock
        self._budget = budget or VerificationBudget(clock)
        self._rejected: LatestEntries[bytes, tuple[KeySet, int]] = LatestEntries(REJECTED_LIMIT)
        """Digests of tokens with a wrong signature, each with the keys, and their generation, that it was wrong by."""

    def verify(self, token: str, is_known: IsKnownAccount) -> ServiceAccountCredential:
        """The account of ``token``, which must be in the credentials file. Raises `AuthenticationError`."""
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        rejected_by = self._rejected.get(digest)
        if rejected_by is not None and rejected_by[0].generation == rejected_by[1]:
            raise _wrong_signature()
        parsed = parse_service_account_token(token)
        keys = self._check_claims(parsed, is_known)
        key = _key_of(keys, parsed)
        self._verify_signature(parsed, keys, key, digest)
        return ServiceAccountCredential(
            issuer=parsed.issuer,
            namespace=parsed.namespace,
            account=parsed.account,
            key=key.thumbprint,
            expires_at_ms=parsed.expires_at_ms,
        )

    def holds(self, credential: ServiceAccountCredential) -> bool:
        """Whether the signing key is still one of its issuer's."""
        keys = self.issuers.get(credential.issuer)
        return keys is not None and keys.holds(credential.key)

    def _check_claims(self, token: ServiceAccountToken, is_known: IsKnownAccount) -> KeySet:
        """Returns the keys of the issuer."""
        keys = self.issuers.get(token.issuer)
        now_ms = self._clock.wall_ms()
        if keys is None:
            issuer = f"{token.issuer[:ISSUER_SHOWN]!a}"
            raise AuthenticationError(AuthFailure.UNKNOWN_ISSUER, f"the token's issuer {issuer} is not one of ours")
        if now_ms >= token.expires_at_ms:
            raise AuthenticationError(AuthFailure.EXPIRED, f"the token of {token.subject} has expired")
        if now_ms < token.begins_at_ms - CLOCK_SLACK_MS:
            text = f"the token of {token.subject} is not valid yet: is a clock wrong?"
            raise AuthenticationError(AuthFailure.NOT_YET_VALID, text)
        if self._audience not in token.audiences:
            text = f"the token of {token.subject} is not for the audience {self._audience!r}"
            raise AuthenticationError(AuthFailure.WRONG_AUDIENCE, text)
        if not is_known(token.issuer, token.namespace, token.account):
            raise AuthenticationError(AuthFailure.UNKNOWN_ACCOUNT, f"no line is for the account {token.subject}")
        return keys

    def _verify_signature(self, token: ServiceAccountToken, keys: KeySet, key: SigningKey, digest: bytes) -> None:
        pod = (token.issuer, token.namespace, token.account, token.pod_uid or digest)
        if not self._budget.allows(pod):
            self.throttled += 1
            raise AuthenticationError(AuthFailure.BUSY, "too many wrong signatures lately: send the token again")
        self.verifications += 1
        if not key.has_signed(token.signed, token.signature, token.algorithm):
            self.wrong_signatures += 1
            self._budget.record_wrong(pod, key.cost_us)
            self._rejected[digest] = keys, keys.generation
            raise _wrong_signature()
        self._budget.record_right(pod)


def _key_of(keys: KeySet, token: ServiceAccountToken) -> SigningKey:
    """The key that the token names, if the token's algorithm is one of the key's."""
    if not keys.is_known:
        raise AuthenticationError(AuthFailure.NO_KEYS, f"the keys of {token.issuer} are not known: {keys.problem}")
    key = keys.key(token.key_id)
    if key is None:
        keys.request_refresh()
        raise AuthenticationError(AuthFailure.UNKNOWN_KEY, f"the token's key is not one of those of {token.issuer}")
    if token.algorithm not in key.algorithms:
        raise AuthenticationError(AuthFailure.ALGORITHM, f"its algorithm does not fit the key of {token.issuer}")
    return key


def _wrong_signature() -> AuthenticationError:
    return AuthenticationError(AuthFailure.BAD_SIGNATURE, "the token is not signed by the key that it names")


def parse_service_account_token(token: str) -> ServiceAccountToken:
    """Parse a token. Raises `AuthenticationError`, which shows no part of it."""
    form = _FORM.fullmatch(token) if len(token) <= TOKEN_LIMIT else None
    if form is None:
        raise _bad("it is not three parts in base64url, or too long")
    key_id, algorithm = _header(_object(form[1], "header"))
    claims = _claims(_object(form[2], "payload"))
    if isinstance(claims, str):
        raise _bad(f"its claims are wrong ({claims})")
    signature = _bytes(form[3])
    if not signature:
        raise _bad("its signature is missing, or not in canonical base64url")
    namespace, account = _subject(claims.sub)
    return ServiceAccountToken(
        issuer=claims.iss,
        namespace=namespace,
        account=account,
        audiences=(claims.aud,) if isinstance(claims.aud, str) else claims.aud or (),
        expires_at_ms=int(claims.exp * 1000),
        begins_at_ms=int(max(claims.nbf, claims.iat) * 1000),
        pod_uid=_pod_uid(claims.kubernetes),
        key_id=key_id,
        algorithm=algorithm,
        signed=token[: form.end(2)].encode("ascii"),
        signature=signature,
    )


def _bad(what: str) -> AuthenticationError:
    return AuthenticationError(AuthFailure.BAD_JWT, f"the token cannot be used: {what}")


def _bytes(segment: str) -> bytes | None:
    """The content, or ``None`` where the spelling is not canonical: the last character may have unused bits."""
    try:
        content = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except Base64Error:
        return None
    return content if urlsafe_b64encode(content).rstrip(b"=") == segment.encode("ascii") else None


def _object(segment: str, name: str) -> dict[str, Any]:
    content = _bytes(segment)
    if content is None:
        raise _bad(f"its {name} is not in canonical base64url")
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MEMBERS_LIMIT:
        raise _bad(f"its {name} has more members than a token needs")
    value = None
    with contextlib.suppress(InvalidInput):  # which shows what it read: no error of ours may have it as its context
        value = strict_json.decode(content)
    if not isinstance(value, dict):
        raise _bad(f"its {name} is not strict JSON, or no object")
    return value


def _header(header: dict[str, Any]) -> tuple[str, str]:
    """The id of the key, and the algorithm."""
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise AuthenticationError(AuthFailure.ALGORITHM, "the token's algorithm is not accepted here, or it has none")
    if {"crit", "b64"} & header.keys():
        raise _bad("its header has an extension that is not supported")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_LIMIT:
        # Where the set has one key it would do, until the next rotation.
        raise _bad("its header does not name the key")
    return key_id, algorithm


def _claims(payload: dict[str, Any]) -> _Claims | str:
    """The claims, or what is wrong with their types, which shows no value."""
    try:
        return msgspec.convert(payload, _Claims)
    except msgspec.ValidationError as error:
        return str(error)


def _subject(subject: Any) -> tuple[str, str]:
    """Namespace and name."""
    found = _SUBJECT.fullmatch(subject) if isinstance(subject, str) else None
    if found is None:
        raise AuthenticationError(AuthFailure.UNKNOWN_ACCOUNT, "the token's subject is no Kubernetes service account")
    return found[1], found[2]


def _pod_uid(kubernetes: Any) -> str | None:
    pod = kubernetes.get("pod") if isinstance(kubernetes, dict) else None
    uid = pod.get("uid") if isinstance(pod, dict) else None
    return uid if isinstance(uid, str) and len(uid) <= UID_LIMIT else None
