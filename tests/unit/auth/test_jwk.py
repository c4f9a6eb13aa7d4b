"""A key set is read for what can be used of it, and says what cannot."""

import json
import time
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from jwt import PyJWK
from jwt.utils import to_base64url_uint

from poolmuster.auth.jwk import KEYS_LIMIT, SET_LIMIT_BYTES, SigningKeys, parse_signing_keys
from poolmuster.model.errors import InvalidInput
from tests.support.issuer import b64, private_key, public_jwk, sign

GOOD = public_jwk(private_key("ES256"), "ES256", kid="good")


def key_set(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def unusable(*keys: Any) -> str:
    """Why a key beside a good one is not used."""
    found = parse_signing_keys(key_set(*keys, GOOD))
    assert list(found.by_id) == ["good"]
    assert len(found.unusable) == 1
    return found.unusable[0]


def refusal(content: bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse_signing_keys(content)
    return caught.value.detail


FITTING = {
    "RS256": {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"},
    "ES256": {"ES256"},
    "ES384": {"ES384"},
    "ES512": {"ES512"},
    "EdDSA": {"EdDSA"},
}


@pytest.mark.parametrize("algorithm", FITTING)
def test_a_key_verifies_by_all_algorithms_that_fit_it_and_by_its_alg_alone_where_it_has_one(algorithm: str) -> None:
    jwk = public_jwk(private_key(algorithm), algorithm, kid="a")
    assert parse_signing_keys(key_set(jwk)).by_id["a"].algorithms == FITTING[algorithm]
    assert parse_signing_keys(key_set(jwk | {"alg": algorithm})).by_id["a"].algorithms == {algorithm}


def test_a_thumbprint_is_that_of_rfc_7638() -> None:
    """By the example in section 3.1 of the RFC."""
    n = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3ok"
        "njhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu"
        "6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8a"
        "wapJzKnqDKgw"
    )
    jwk = {"kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"}
    key = parse_signing_keys(key_set(jwk)).by_id["2011-04-29"]
    assert b64(key.thumbprint) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


def test_one_key_has_one_thumbprint_however_its_numbers_are_written() -> None:
    jwk = public_jwk(private_key("RS256"), "RS256", kid="a")
    longer = b64(b"\0" + urlsafe_b64decode(jwk["n"] + "=="))
    first, second = (parse_signing_keys(key_set(jwk | {"n": n})).by_id["a"] for n in (jwk["n"], longer))
    assert first.thumbprint == second.thumbprint


SECRETS = [{"d": "AQAB"}, {"p": "AQAB"}, {"k": "AQAB"}, {"oth": []}]


@pytest.mark.parametrize("members", SECRETS)
def test_a_private_key_that_was_published_is_not_used(members: dict[str, Any]) -> None:
    assert "can sign with" in unusable(public_jwk(private_key("ES256"), "ES256", kid="a") | members)


ODD: list[tuple[str, Any, str]] = [
    ("no object", 1, "no object"),
    ("a secret of both sides", {"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"}, "secret"),
    ("a secret of both sides without the secret", {"kty": "oct", "kid": "a"}, "kind of key"),
    ("for encryption", GOOD | {"use": "enc"}, "not for signatures"),
    ("an odd use", GOOD | {"use": ["sig"]}, "not for signatures"),
    ("for signing only", GOOD | {"key_ops": ["sign"]}, "not for verifying"),
    ("odd operations", GOOD | {"key_ops": "verify"}, "not for verifying"),
    ("no kid", {name: value for name, value in GOOD.items() if name != "kid"}, "kid"),
    ("a number as kid", GOOD | {"kid": 1}, "kid"),
    ("a kid of 257", GOOD | {"kid": "a" * 257}, "kid"),
    ("a kind that is not known", GOOD | {"kty": "AKP"}, "kind of key"),
    ("a list of kinds", GOOD | {"kty": ["EC"]}, "kind of key"),
    ("no kind", {"kid": "a"}, "kind of key"),
    ("a curve that is not known", GOOD | {"crv": "P-192"}, "kind of key"),
    ("the curve of coins", public_jwk(private_key("ES256K"), "ES256K", kid="a"), "kind of key"),
    ("a curve of other keys", GOOD | {"crv": "Ed25519"}, "kind of key"),
    ("an alg of another kind", GOOD | {"alg": "RS256"}, "alg"),
    ("an alg of another curve", GOOD | {"alg": "ES384"}, "alg"),
    ("the alg none", GOOD | {"alg": "none"}, "alg"),
    ("an alg with a secret", public_jwk(private_key("RS256"), "RS256", kid="a", alg="HS256"), "alg"),
    ("a list of algs", GOOD | {"alg": ["ES256"]}, "alg"),
    ("a point beside the curve", GOOD | {"x": b64(b"\1" * 32)}, "no key"),
    ("no point", GOOD | {"x": b64(b"\0" * 32), "y": b64(b"\0" * 32)}, "no key"),
    ("half a point", {name: value for name, value in GOOD.items() if name != "y"}, "no key"),
    ("coordinates too short", GOOD | {"x": b64(b"\1" * 31)}, "no key"),
    ("no base64url", GOOD | {"x": GOOD["x"] + "\n"}, "base64url"),
    ("a number for a number", GOOD | {"x": 1}, "base64url"),
    ("no numbers", {"kty": "RSA", "kid": "a"}, "no key"),
    ("1024 bits", public_jwk(private_key("RS256", bits=1024), "RS256", kid="a"), "1024 bits"),
    ("an even exponent", public_jwk(private_key("RS256"), "RS256", kid="a", e="Ag"), "no key"),
    ("a great exponent", public_jwk(private_key("RS256"), "RS256", kid="a", e=b64(b"\1" * 200)), "exponent"),
    ("a number without end", public_jwk(private_key("RS256"), "RS256", kid="a", n="A" * 100_000), "too long"),
    ("Ed448", {"kty": "OKP", "crv": "Ed448", "kid": "a", "x": "AA"}, "kind of key"),
]


@pytest.mark.parametrize(("jwk", "why"), [row[1:] for row in ODD], ids=[row[0] for row in ODD])
def test_a_key_that_cannot_be_used_leaves_the_others(jwk: Any, why: str) -> None:
    line = unusable(jwk)
    assert line.startswith("key 0: ")
    assert why in line
    assert not [value for value in (GOOD["x"], GOOD["y"]) if value in line]


def test_two_keys_with_one_id_are_not_told_apart_so_neither_is_used() -> None:
    other = public_jwk(private_key("ES256", 1), "ES256", kid="twice")
    assert "neither" in unusable(other, public_jwk(private_key("ES256", 2), "ES256", kid="twice"))


def test_one_key_listed_for_each_of_its_algorithms_is_one() -> None:
    jwk = public_jwk(private_key("RS256"), "RS256", kid="a")
    found = parse_signing_keys(key_set(jwk | {"alg": "RS256"}, jwk | {"alg": "PS256"}))
    assert found.by_id["a"].algorithms == {"RS256", "PS256"}
    assert found.unusable == ()


def test_a_key_verifies_by_no_algorithm_but_its_own() -> None:
    jwk = public_jwk(private_key("RS256"), "RS256", kid="a", alg="RS256")
    key = parse_signing_keys(key_set(jwk)).by_id["a"]
    assert key.has_signed(b"x", sign("x", private_key("RS256"), "RS256"), "RS256")
    assert not key.has_signed(b"x", sign("x", private_key("RS256"), "RS512"), "RS512")


NO_SETS: list[tuple[str, bytes, str]] = [
    ("nothing", b"", "is no key set: not JSON"),
    ("HTML", b"<html>", "is no key set: not JSON"),
    ("a list", b"[]", "no list of keys"),
    ("no keys", b"{}", "no list of keys"),
    ("keys as an object", b'{"keys": {}}', "no list of keys"),
    ("keys twice", b'{"keys": [], "keys": []}', "twice"),
    ("an empty list", b'{"keys": []}', "holds no key that can be used"),
    ("a discovery document", b'{"jwks_uri": "https://a.example/keys"}', "jwks_uri"),
    ("too deep", b"[" * 10_000, "deep"),
    ("too much", b" " * (SET_LIMIT_BYTES + 1), "bytes"),
    ("too many", key_set(*[{}] * (KEYS_LIMIT + 1)), "more than 100 keys"),
    ("none of use", key_set({"kty": "oct", "kid": "a"}), "key 0: its kind of key"),
]


@pytest.mark.parametrize(("content", "why"), [row[1:] for row in NO_SETS], ids=[row[0] for row in NO_SETS])
def test_what_holds_no_key_is_refused_with_a_line_that_says_why(content: bytes, why: str) -> None:
    assert why in refusal(content)


def test_a_line_does_not_name_all_of_a_hundred_keys() -> None:
    assert len(refusal(key_set(*[GOOD | {"use": "enc"}] * 100))) < 1000


def test_the_greatest_set_is_read_in_no_time_worth_mentioning() -> None:
    """In milliseconds; the bound is for machines that do something else besides."""
    keys = [public_jwk(private_key("ES512"), "ES512", kid=str(number), x5c=["A" * 2000]) for number in range(100)]
    content = key_set(*keys)
    assert len(content) < SET_LIMIT_BYTES
    best_s = float("inf")
    found = SigningKeys({})
    for _ in range(5):
        begun_s = time.perf_counter()
        found = parse_signing_keys(content)
        best_s = min(best_s, time.perf_counter() - begun_s)
    assert len(found.by_id) == 100
    assert best_s < 0.1


def test_an_rsa_key_costs_by_its_size() -> None:
    costs = []
    for number in (b"\xff" * 256, b"\xff" * 512, b"\xff" * 1024):
        jwk = {"kty": "RSA", "kid": "a", "e": "AQAB", "n": b64(number)}
        costs.append(parse_signing_keys(key_set(jwk)).by_id["a"].cost_us)
    assert costs == [25, 100, 400]
    over = {"kty": "RSA", "kid": "a", "e": "AQAB", "n": to_base64url_uint((1 << 8193) - 1).decode()}
    assert "8193 bits" in unusable(over)


def test_a_kind_of_key_that_the_cryptography_of_this_machine_leaves_out_spoils_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where OpenSSL is built without a curve, or runs by FIPS 140."""

    def built(members: dict[str, str], algorithm: str) -> PyJWK:
        if algorithm == "EdDSA":
            raise UnsupportedAlgorithm("ed25519 is not supported by this version of OpenSSL")
        return PyJWK(members, algorithm=algorithm)

    monkeypatch.setattr("poolmuster.auth.jwk.PyJWK", built)
    assert "its numbers make no key" in unusable(public_jwk(private_key("EdDSA"), "EdDSA", kid="a"))
