"""The public signing keys in a JSON Web Key Set (RFC 7517).

A key is used only for the purpose that its set states. One that cannot be used leaves the others usable.
"""

import re
from hashlib import sha256
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError
from jwt.algorithms import AllowedPublicKeys, get_default_algorithms

from poolmuster.model import strict_json
from poolmuster.model.errors import InvalidInput

SET_LIMIT_BYTES = 256 * 1024
KEYS_LIMIT = 100
KEY_ID_LIMIT = 256
REPORT_LIMIT = 10
"""How many unusable keys of a set an error or a log line names."""

RSA_LEAST_BITS = 2048
RSA_MOST_BITS = 8192
RSA_EXPONENT_LIMIT = 1 << 32
"""Greater exponents make a verification slow, and are not in use."""

_KINDS: dict[tuple[str, str | None], tuple[int, tuple[str, ...]]] = {
    ("RSA", None): (25, ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    ("EC", "P-256"): (70, ("ES256",)),
    ("EC", "P-384"): (500, ("ES384",)),
    ("EC", "P-521"): (500, ("ES512",)),
    ("OKP", "Ed25519"): (110, ("EdDSA",)),
}
"""By ``kty`` and ``crv``: the cost in microseconds (of RSA with 2048 bits), and the algorithms, none with a secret."""

ALGORITHMS = frozenset(name for _, names in _KINDS.values() for name in names)
_BY_NAME = {name: algorithm for name, algorithm in get_default_algorithms().items() if name in ALGORITHMS}

_PUBLIC_MEMBERS = ("kty", "crv", "n", "e", "x", "y")
_SECRET_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_NUMBER = re.compile(r"[A-Za-z0-9_-]{1,1400}")


class SigningKey(msgspec.Struct, frozen=True, eq=False):
    """One key and the algorithms that it may verify with.

    ``thumbprint`` is its SHA-256 by RFC 7638; ``cost_us`` about the time of one verification on a machine of 2024.
    """

    key_id: str
    algorithms: frozenset[str]
    thumbprint: bytes
    cost_us: int
    public: AllowedPublicKeys

    def has_signed(self, content: bytes, signature: bytes, algorithm: str) -> bool:
        """Whether ``signature`` is this key's for ``content``, by ``algorithm``, which must be one of its own."""
        return algorithm in self.algorithms and _BY_NAME[algorithm].verify(content, self.public, signature)


class SigningKeys(msgspec.Struct, frozen=True, eq=False):
    """The usable keys of a set by their ids, and a line for each unusable one, with the reason."""

    by_id: dict[str, SigningKey]
    unusable: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, tuple[bytes, frozenset[str]]]:
        """Equal for two sets with the same keys."""
        return {key_id: (key.thumbprint, key.algorithms) for key_id, key in self.by_id.items()}


class _Unusable(Exception):
    """Why a key cannot be used. The text shows no member of it: it may be a private key, published by mistake."""


def parse_signing_keys(content: bytes) -> SigningKeys:
    """Parse a key set. Raises `InvalidInput` where it holds no usable key."""
    keys: dict[str, SigningKey] = {}
    ambiguous: set[str] = set()
    unusable: list[str] = []
    for place, jwk in enumerate(_listed(content)):
        try:
            key = _signing_key(jwk)
        except _Unusable as error:
            unusable.append(f"key {place}: {error}")
            continue
        other = keys.get(key.key_id, key)
        if other.thumbprint != key.thumbprint:
            ambiguous.add(key.key_id)
            unusable.append(f"key {place}: another has the same kid, so neither is used")
        keys[key.key_id] = msgspec.structs.replace(key, algorithms=key.algorithms | other.algorithms)
    usable = {key_id: key for key_id, key in keys.items() if key_id not in ambiguous}
    if not usable:
        why = f": {'; '.join(unusable[:REPORT_LIMIT])}" if unusable else ""
        raise InvalidInput(f"holds no key that can be used{why}")
    return SigningKeys(usable, tuple(unusable))


def _listed(content: bytes) -> list[Any]:
    if len(content) > SET_LIMIT_BYTES:
        raise InvalidInput(f"is over {SET_LIMIT_BYTES} bytes")
    try:
        document = strict_json.decode(content)
    except InvalidInput as error:
        raise InvalidInput(f"is no key set: {'; '.join(fault.detail for fault in error.field_errors)}") from None
    document = document if isinstance(document, dict) else {}
    keys = document.get("keys")
    if not isinstance(keys, list):
        hint = "; it is a discovery document, and the key set is at its jwks_uri" if "jwks_uri" in document else ""
        raise InvalidInput(f"is no key set: it has no list of keys{hint}")
    if len(keys) > KEYS_LIMIT:
        raise InvalidInput(f"holds more than {KEYS_LIMIT} keys")
    return keys


def _signing_key(jwk: Any) -> SigningKey:
    if not isinstance(jwk, dict):
        raise _Unusable("it is no object")
    if _SECRET_MEMBERS & jwk.keys():
        raise _Unusable("it is a secret, which every reader of the set can sign with")
    key_id = jwk.get("kid")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_LIMIT:
        raise _Unusable("it has no kid, and nothing else tells which token it is for")
    cost_us, algorithms = _cost_and_algorithms(jwk)
    public = _public_key(jwk, algorithms[0])
    if isinstance(public, RSAPublicKey):
        cost_us = cost_us * public.key_size**2 // RSA_LEAST_BITS**2
    form = _BY_NAME[algorithms[0]].to_jwk(public, as_dict=True)  # one for all ways in which a set may write the numbers
    members = {name: form[name] for name in _PUBLIC_MEMBERS if name in form}
    return SigningKey(
        key_id=key_id,
        algorithms=frozenset(algorithms),
        thumbprint=sha256(strict_json.canonical(members)).digest(),
        cost_us=cost_us,
        public=public,
    )


def _cost_and_algorithms(jwk: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    """By the kind of key, and by the purpose that its set states."""
    if jwk.get("use", "sig") != "sig":
        raise _Unusable("it is not for signatures")
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise _Unusable("it is not for verifying")
    kty, curve = jwk.get("kty"), jwk.get("crv")
    kind = _KINDS.get((str(kty), None if kty == "RSA" else str(curve)))
    if kind is None:
        raise _Unusable("its kind of key, or its curve, is not supported")
    cost_us, algorithms = kind
    named = jwk.get("alg")
    if named is not None and named not in algorithms:
        raise _Unusable("its alg does not fit its kind of key, or is not supported")
    return cost_us, algorithms if named is None else (named,)


def _public_key(jwk: dict[str, Any], algorithm: str) -> AllowedPublicKeys:
    members = {name: jwk[name] for name in _PUBLIC_MEMBERS if name in jwk}
    numbers = [members[name] for name in ("n", "e", "x", "y") if name in members]
    if not all(isinstance(number, str) and _NUMBER.fullmatch(number) for number in numbers):
        raise _Unusable("its numbers are not in base64url, or too long")
    try:
        public: AllowedPublicKeys = PyJWK(members, algorithm=algorithm).key
    except (PyJWTError, ValueError, TypeError, UnsupportedAlgorithm):
        raise _Unusable("its numbers make no key") from None
    if isinstance(public, RSAPublicKey):
        if not RSA_LEAST_BITS <= public.key_size <= RSA_MOST_BITS:
            raise _Unusable(f"it has {public.key_size} bits; {RSA_LEAST_BITS} to {RSA_MOST_BITS} are accepted")
        if public.public_numbers().e >= RSA_EXPONENT_LIMIT:
            raise _Unusable("its exponent is too great")
    return public
