"""A service account's token taken apart: a JSON Web Token (RFC 7519, in the compact form of RFC 7515), read strictly.

Nothing is proved here. What can be read in two ways is refused: spellings of base64url that are not canonical,
duplicate members, numbers that are none. What a header says about where to find a key is never looked at.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Any

import msgspec

from poolmuster.auth.jwk import ALGORITHMS, KEY_ID_LIMIT
from poolmuster.model import strict_json
from poolmuster.model.auth import AuthenticationError, AuthFailure
from poolmuster.model.errors import InvalidInput

TOKEN_LIMIT = 4 * 1024
"""In characters. Kubernetes' own take 1,000 to 1,500."""

MEMBERS_LIMIT = 48
"""Members, elements and containers of a header or a payload: what is read before anything is known costs little."""

INSTANT_LIMIT_S = 253_402_300_800
"""The year 10000."""

UID_LIMIT = 128

_FORM = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")
"""A signature may be empty: by an algorithm that is none, which is told."""

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SUBJECT = re.compile(rf"system:serviceaccount:({_LABEL}):({_LABEL}(?:\.{_LABEL})*)")
_LABEL_LIMIT = 63
_SUBDOMAIN_LIMIT = 253
_SUBJECT_LIMIT = 400


class ServiceAccountToken(msgspec.Struct, frozen=True, kw_only=True):
    """What a token claims, signed by whoever ``signature`` shows. Instants are in milliseconds since 1970.

    ``pod_uid`` is that of the pod which it was made for, if it says so.
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

    def __repr__(self) -> str:
        return f"AccountToken({self.issuer!a}, {self.namespace}/{self.account})"


def parse_service_account_token(token: str) -> ServiceAccountToken:
    """Take a token apart. Raises `AuthenticationError`, which tells nothing of what is in it."""
    form = _FORM.fullmatch(token) if len(token) <= TOKEN_LIMIT else None
    if form is None:
        raise _bad("it is not three parts in base64url, or too long")
    key_id, algorithm = _header(_object(form[1], "header"))
    claims = _object(form[2], "payload")
    signature = _bytes(form[3])
    if not signature:
        raise _bad("its signature is missing, or not in canonical base64url")
    issuer = claims.get("iss")
    if not isinstance(issuer, str):
        raise _bad("it does not say who issued it")
    namespace, account = _subject(claims.get("sub"))
    return ServiceAccountToken(
        issuer=issuer,
        namespace=namespace,
        account=account,
        audiences=_audiences(claims.get("aud")),
        expires_at_ms=_instant_ms(claims, "exp"),
        begins_at_ms=max((_instant_ms(claims, name) for name in ("nbf", "iat") if name in claims), default=0),
        pod_uid=_pod_uid(claims.get("kubernetes.io")),
        key_id=key_id,
        algorithm=algorithm,
        signed=token[: form.end(2)].encode("ascii"),
        signature=signature,
    )


def _bad(what: str) -> AuthenticationError:
    return AuthenticationError(AuthFailure.BAD_JWT, f"the token cannot be used: {what}")


def _bytes(segment: str) -> bytes | None:
    """What a part says, if it is the only way to say it: a last character has bits that do not count."""
    try:
        found = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except Base64Error:
        return None
    return found if urlsafe_b64encode(found).rstrip(b"=") == segment.encode("ascii") else None


def _object(segment: str, name: str) -> dict[str, Any]:
    content = _bytes(segment)
    if content is None:
        raise _bad(f"its {name} is not in canonical base64url")
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MEMBERS_LIMIT:
        raise _bad(f"its {name} has more members than a token needs")
    value = _decoded(content)
    if not isinstance(value, dict):
        raise _bad(f"its {name} is not strict JSON, or no object")
    return value


def _decoded(content: bytes) -> Any:
    """The value, or ``None``: the errors of a decoder show what it read, so none of them goes on from here."""
    try:
        return strict_json.decode(content)
    except InvalidInput:
        return None


def _header(header: dict[str, Any]) -> tuple[str, str]:
    """The id of the key, and the algorithm."""
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise AuthenticationError(
            AuthFailure.ALGORITHM, "the token is signed by an algorithm that is not accepted, or by none"
        )
    if {"crit", "b64"} & header.keys():
        raise _bad("its header wants something understood that is not")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_LIMIT:
        # One key would do for now, and with the next rotation every such token would stop counting.
        raise _bad("its header does not name the key")
    return key_id, algorithm


def _subject(subject: Any) -> tuple[str, str]:
    """Namespace and name, in the forms of Kubernetes: a DNS label and a DNS subdomain."""
    found = _SUBJECT.fullmatch(subject) if isinstance(subject, str) and len(subject) <= _SUBJECT_LIMIT else None
    if found is None or len(found[1]) > _LABEL_LIMIT or len(found[2]) > _SUBDOMAIN_LIMIT:
        raise AuthenticationError(
            AuthFailure.UNKNOWN_ACCOUNT, "the token's subject is no service account of Kubernetes"
        )
    return found[1], found[2]


def _audiences(audience: Any) -> tuple[str, ...]:
    if audience is None:
        return ()
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
        raise _bad("its audience is neither a string nor a list of strings")
    return tuple(audiences)


def _instant_ms(claims: dict[str, Any], name: str) -> int:
    """A NumericDate, which may have a fraction. Booleans are numbers to Python, and not here."""
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < INSTANT_LIMIT_S:
        raise _bad(f"its {name} is missing, or no instant")
    return int(value * 1000)


def _pod_uid(kubernetes: Any) -> str | None:
    pod = kubernetes.get("pod") if isinstance(kubernetes, dict) else None
    uid = pod.get("uid") if isinstance(pod, dict) else None
    return uid if isinstance(uid, str) and len(uid) <= UID_LIMIT else None
