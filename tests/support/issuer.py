"""An issuer of service-account tokens, as a cluster is one, with every way to make a token that should not count."""

import functools
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import AllowedPrivateKeys, get_default_algorithms

from poolmuster.auth.jwk import parse_signing_keys
from poolmuster.auth.jwks import KeySet
from poolmuster.ports.clock import Clock

ISSUER = "https://issuer.example"
AUDIENCE = "poolmuster"
NAMESPACE = "inference"
ACCOUNT = "relay"

_ALGORITHMS = get_default_algorithms()
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1(), "ES256K": ec.SECP256K1()}


@functools.cache
def private_key(algorithm: str, number: int = 0, bits: int = 2048) -> AllowedPrivateKeys:
    """A key for ``algorithm``, made once for all tests; another for each ``number``."""
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, bits)


def public_jwk(key: AllowedPrivateKeys, algorithm: str, **members: Any) -> dict[str, Any]:
    """Its public half as a JWK; members that are ``None`` are left out."""
    found = dict(_ALGORITHMS[algorithm].to_jwk(key.public_key(), as_dict=True))
    found.pop("key_ops", None)
    return {name: value for name, value in (found | members).items() if value is not None}


def b64(content: bytes) -> str:
    """As base64url without padding."""
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def sign(signed: str, key: AllowedPrivateKeys, algorithm: str) -> bytes:
    """A signature of a compact form's first two parts."""
    return _ALGORITHMS[algorithm].sign(signed.encode(), key)


class Issuer:
    """Signs by the key that it added last, and publishes those that it has."""

    def __init__(self, url: str = ISSUER, algorithm: str = "ES256") -> None:
        self.url = url
        self.keys: dict[str, tuple[str, AllowedPrivateKeys]] = {}
        self.signs_by = ""
        self.add("first", algorithm)

    def add(self, key_id: str, algorithm: str = "ES256", number: int = 0) -> None:
        """Publish one more key, and sign by it."""
        self.keys[key_id] = (algorithm, private_key(algorithm, number))
        self.signs_by = key_id

    def withdraw(self, key_id: str) -> None:
        """Publish a key no more."""
        del self.keys[key_id]

    def jwks(self) -> bytes:
        """The key set."""
        keys = [
            public_jwk(key, algorithm, kid=key_id, use="sig", alg=algorithm)
            for key_id, (algorithm, key) in self.keys.items()
        ]
        return json.dumps({"keys": keys}).encode()

    def claims(self, now_ms: int, **changes: Any) -> dict[str, Any]:
        """What Kubernetes puts into a token for a pod; changes that are ``None`` take a claim out."""
        now_s = now_ms // 1000
        claims = {
            "aud": [AUDIENCE],
            "exp": now_s + 3600,
            "iat": now_s,
            "nbf": now_s,
            "iss": self.url,
            "jti": "0b4f6fd7-7f6d-4d3c-8c0a-4b0f7b6e3f11",
            "kubernetes.io": {
                "namespace": NAMESPACE,
                "node": {"name": "node-1", "uid": "6a0ac1b5-2f0b-4b9f-9d53-0a5d4b3a9a10"},
                "pod": {"name": "relay-7d9c4", "uid": "5c1b7a72-87f0-4d3a-b1e2-0f3e5a0b2c21"},
                "serviceaccount": {"name": ACCOUNT, "uid": "4d2b8c14-53a1-4e0e-9f5c-1a7d6b4e3d32"},
            },
            "sub": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}",
        }
        return {name: value for name, value in (claims | changes).items() if value is not None}

    def header(self, **changes: Any) -> dict[str, Any]:
        """The header that Kubernetes writes; changes that are ``None`` take a member out."""
        header = {"alg": self.keys[self.signs_by][0], "kid": self.signs_by} | changes
        return {name: value for name, value in header.items() if value is not None}

    def token(self, now_ms: int, **changes: Any) -> str:
        """A token."""
        return self.compact(self.header(), self.claims(now_ms, **changes))

    def compact(self, header: Any, payload: Any) -> str:
        """What the issuer signs, whatever it says; bytes are taken as they are."""
        parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
        signed = ".".join(map(b64, parts))
        algorithm, key = self.keys[self.signs_by]
        return f"{signed}.{b64(sign(signed, key, algorithm))}"


class GivenKeys(KeySet):
    """Keys that a test gives, at once."""

    def __init__(self, issuer: Issuer, clock: Clock, on_withdrawal: Callable[[], None] = lambda: None) -> None:
        super().__init__(issuer.url, clock, on_withdrawal)
        self.source = issuer
        self.asked = 0

    def publish(self) -> None:
        """Take what the issuer publishes now."""
        self._replace(parse_signing_keys(self.source.jwks()))

    def request_refresh(self) -> None:
        self.asked += 1

    async def run(self) -> None:
        """There is nothing to read."""
