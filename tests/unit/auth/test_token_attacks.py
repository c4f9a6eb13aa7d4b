"""Tokens that somebody else has made, or changed: none proves anything."""

import hmac
import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, strategies
from jwt.utils import der_to_raw_signature, raw_to_der_signature

from poolmuster.model.auth import AuthenticationError, AuthFailure
from tests.support.issuer import ISSUER, Issuer, b64, private_key, public_jwk, sign
from tests.unit.auth.accounts import World

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def parts_of(token: str) -> tuple[str, str, str]:
    header, payload, signature = token.split(".")
    return header, payload, signature


def unsigned(world: World, header: Any, signature: str = "") -> str:
    claims = json.dumps(world.issuer.claims(world.now_ms)).encode()
    return f"{b64(json.dumps(header).encode())}.{b64(claims)}.{signature}"


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "none ", "", "null"])
@pytest.mark.parametrize("signature", ["", "AA", "AAAA"])
def test_a_token_that_nobody_signed(algorithm: str, signature: str) -> None:
    world = World()
    reason = world.refusal(unsigned(world, world.issuer.header(alg=algorithm), signature))
    assert reason is AuthFailure.ALGORITHM


ODD_ALGORITHMS = [
    None,
    True,
    0,
    ["ES256"],
    {"ES256": 1},
    "es256",
    "ES256 ",
    "ES256\n",
    "ES256K",
    "ES521",
    "HS256",
    "dir",
]


@pytest.mark.parametrize("algorithm", ODD_ALGORITHMS)
def test_an_algorithm_that_is_none_of_ours(algorithm: object) -> None:
    world = World()
    header = world.issuer.header() | {"alg": algorithm}
    claims = world.issuer.claims(world.now_ms)
    assert world.refusal(world.issuer.compact(header, claims)) is AuthFailure.ALGORITHM


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("digest", ["sha256", "sha384", "sha512"])
def test_a_public_key_is_no_secret_to_sign_with(algorithm: str, digest: str) -> None:
    world = World(algorithm)
    public = private_key(algorithm).public_key()
    secrets = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(public_jwk(private_key(algorithm), algorithm)).encode(),
        world.issuer.jwks(),
        b"",
    ]
    for secret in secrets:
        for named in (f"HS{digest[3:]}", algorithm):
            token = unsigned(world, world.issuer.header(alg=named))
            signature = hmac.new(secret, token[:-1].encode(), digest).digest()
            expected = AuthFailure.BAD_SIGNATURE if named == algorithm else AuthFailure.ALGORITHM
            assert world.refusal(token + b64(signature)) is expected


@pytest.mark.parametrize("of_key", ["RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA"])
@pytest.mark.parametrize("named", ["RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"])
def test_an_algorithm_that_does_not_fit_the_key(of_key: str, named: str) -> None:
    world = World(of_key)
    if of_key == named:
        return
    header = world.issuer.header(alg=named)
    assert world.refusal(world.issuer.compact(header, world.issuer.claims(world.now_ms))) is AuthFailure.ALGORITHM


def test_another_curve_than_the_algorithm_names() -> None:
    world = World("ES256")
    token = unsigned(world, world.issuer.header())
    for other in ("ES384", "ES512", "ES256K"):
        forged = token + b64(sign(token[:-1], private_key(other), other))
        assert world.refusal(forged) is AuthFailure.BAD_SIGNATURE


ZEROS = [(0, 0), (0, 1), (1, 0), (P256_ORDER, P256_ORDER), (P256_ORDER, 1), (1, P256_ORDER), (2**256 - 1, 2**256 - 1)]


@pytest.mark.parametrize(("r", "s"), ZEROS)
def test_signatures_that_would_fit_everything(r: int, s: int) -> None:
    world = World("ES256")
    forged = unsigned(world, world.issuer.header(), b64(r.to_bytes(32, "big") + s.to_bytes(32, "big")))
    assert world.refusal(forged) is AuthFailure.BAD_SIGNATURE


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES512", "EdDSA"])
@pytest.mark.parametrize("size", [1, 2, 32, 63, 64, 65, 96, 132, 255, 256, 257, 1024])
@pytest.mark.parametrize("filled", [b"\x00", b"\xff"])
def test_signatures_of_every_size(algorithm: str, size: int, filled: bytes) -> None:
    world = World(algorithm)
    forged = unsigned(world, world.issuer.header(), b64(filled * size))
    assert world.refusal(forged) is AuthFailure.BAD_SIGNATURE


def test_a_signature_in_der() -> None:
    world = World()
    header, payload, signature = parts_of(world.token())
    der = raw_to_der_signature(urlsafe_b64decode(signature + "=="), private_key("ES256").curve)  # type: ignore[union-attr]  # it is a key on a curve
    assert world.refusal(f"{header}.{payload}.{b64(der)}") is AuthFailure.BAD_SIGNATURE


def test_the_second_signature_that_each_signature_on_a_curve_has_proves_the_same_and_no_more() -> None:
    world = World()
    token = world.token()
    header, payload, signature = parts_of(token)
    curve = private_key("ES256").curve  # type: ignore[union-attr]  # it is a key on a curve
    r, s = decode_dss_signature(raw_to_der_signature(urlsafe_b64decode(signature + "=="), curve))
    other = der_to_raw_signature(encode_dss_signature(r, P256_ORDER - s), curve)
    assert world.verify(f"{header}.{payload}.{b64(other)}") == world.verify(token)


@pytest.mark.parametrize("member", ["jwk", "jku", "x5u", "x5c", "x5t"])
def test_a_key_that_the_token_brings_along_is_not_looked_at(member: str) -> None:
    world = World()
    stranger = Issuer()
    stranger.keys["first"] = ("ES256", private_key("ES256", 9))
    brought: dict[str, Any] = {
        "jwk": public_jwk(private_key("ES256", 9), "ES256", kid="first"),
        "x5c": ["MIIB"],
    }
    header = stranger.header(**{member: brought.get(member, "http://127.0.0.1:9/keys")})
    forged = stranger.compact(header, stranger.claims(world.now_ms))
    assert world.refusal(forged) is AuthFailure.BAD_SIGNATURE
    honest = world.issuer.compact(header, world.issuer.claims(world.now_ms))
    assert world.verify(honest).issuer == ISSUER


KEY_IDS = ["../first", "/dev/null", "first\0", "FIRST", " first", "first\n", "' OR 1=1", "f\u0456rst", "a" * 256]


@pytest.mark.parametrize("key_id", KEY_IDS)
def test_a_key_id_is_a_name_and_nothing_else(key_id: str) -> None:
    world = World()
    token = world.issuer.compact(world.issuer.header(kid=key_id), world.issuer.claims(world.now_ms))
    assert world.refusal(token) is AuthFailure.UNKNOWN_KEY


@pytest.mark.parametrize("key_id", [None, "", 0, True, ["first"], {"first": 1}, "a" * 257])
def test_a_token_names_its_key_even_where_there_is_only_one(key_id: object) -> None:
    world = World()
    token = world.issuer.compact(world.issuer.header() | {"kid": key_id}, world.issuer.claims(world.now_ms))
    assert world.refusal(token) is AuthFailure.BAD_JWT
    assert world.refusal(world.issuer.compact({"alg": "ES256"}, world.issuer.claims(world.now_ms))) is (
        AuthFailure.BAD_JWT
    )


@pytest.mark.parametrize(
    "extension", [{"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": False}, {"b64": False}, {"b64": True}]
)
def test_a_header_that_wants_something_understood(extension: dict[str, Any]) -> None:
    world = World()
    token = world.issuer.compact(world.issuer.header(**extension), world.issuer.claims(world.now_ms))
    assert world.refusal(token) is AuthFailure.BAD_JWT


def test_a_token_in_a_token() -> None:
    world = World()
    nested = world.issuer.compact(world.issuer.header(cty="JWT"), world.token().encode())
    assert world.refusal(nested) is AuthFailure.BAD_JWT


@pytest.mark.parametrize(
    "form", ["", ".", "..", "...", "a.b", "a.b.c", "a.b.c.d", "a.b.c.d.e", "\u0430.b.c", "\ud800.b.c"]
)
def test_what_is_no_token_at_all(form: str) -> None:
    assert World().refusal(form) is AuthFailure.BAD_JWT


def test_a_token_cut_at_any_place() -> None:
    world = World()
    token = world.token()
    signature = token.rindex(".") + 1
    for end in range(len(token)):
        reason = world.refusal(token[:end])
        assert reason in {AuthFailure.BAD_JWT, AuthFailure.BAD_SIGNATURE}, end
        assert reason is AuthFailure.BAD_JWT or end > signature


@pytest.mark.parametrize("space", [" ", "\n", "\t", "\r", "\0", "\x0b", "\u00a0", "=", "==", "+", "/", "%3D"])
def test_one_token_has_one_spelling(space: str) -> None:
    world = World()
    token = world.token()
    for place in (0, 1, token.index("."), token.index(".") + 1, token.rindex("."), len(token) - 1, len(token)):
        assert world.refusal(token[:place] + space + token[place:]) is AuthFailure.BAD_JWT


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256"])
def test_the_last_character_of_a_signature_has_no_bits_that_do_not_count(algorithm: str) -> None:
    world = World(algorithm)
    token = world.token()
    assert len(token.rsplit(".")[-1]) % 4, "or there would be no such bits"
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    outcomes = [world.refusal(token[:-1] + other) for other in alphabet if other != token[-1]]
    assert set(outcomes) == {AuthFailure.BAD_JWT, AuthFailure.BAD_SIGNATURE}


PAYLOADS: dict[str, bytes] = {
    "a member twice": b'{"iss": "https://issuer.example", "iss": "https://issuer.example"}',
    "a member twice, once escaped": b'{"iss": "https://issuer.example", "\\u0069ss": "https://other.example"}',
    "a list": b'[{"iss": "https://issuer.example"}]',
    "a string": b'"https://issuer.example"',
    "null": b"null",
    "nothing": b" ",
    "a byte order mark": b'\xef\xbb\xbf{"iss": "https://issuer.example"}',
    "not UTF-8": b'{"iss": "\xff"}',
    "UTF-16": '{"iss": "https://issuer.example"}'.encode("utf-16"),
    "a lone surrogate": b'{"iss": "\\ud800"}',
    "NaN": b'{"iss": "https://issuer.example", "exp": NaN}',
    "too deep": b'{"a":' * 100 + b"1" + b"}" * 100,
    "far too deep": b"[" * 5000 + b"]" * 5000,
    "many empty lists": b'{"a":[' + b",".join([b"[]"] * 1500) + b"]}",
    "two objects": b"{}{}",
    "a comment": b'{/**/"iss": "https://issuer.example"}',
    "single quotes": b"{'iss': 'https://issuer.example'}",
    "an integer of a thousand digits": b'{"exp": ' + b"9" * 1000 + b"}",
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_json_that_can_be_read_in_two_ways_or_not_at_all(payload: bytes) -> None:
    world = World()
    assert world.refusal(world.issuer.compact(world.issuer.header(), payload)) is AuthFailure.BAD_JWT
    token = world.issuer.compact(payload, world.issuer.claims(world.now_ms))
    assert world.refusal(token) in {AuthFailure.BAD_JWT, AuthFailure.ALGORITHM}


@pytest.mark.parametrize("name", ["iss", "sub", "aud", "exp", "kubernetes.io"])
def test_a_claim_twice_in_a_signed_token(name: str) -> None:
    world = World()
    claims = world.issuer.claims(world.now_ms)
    twice = json.dumps(claims)[:-1] + f', "{name}": {json.dumps(claims[name])}}}'
    assert world.refusal(world.issuer.compact(world.issuer.header(), twice.encode())) is AuthFailure.BAD_JWT


@pytest.mark.parametrize("name", ["alg", "kid"])
def test_a_member_of_the_header_twice(name: str) -> None:
    world = World()
    header = world.issuer.header()
    twice = json.dumps(header)[:-1] + f', "{name}": "{header[name]}"}}'
    token = world.issuer.compact(twice.encode(), world.issuer.claims(world.now_ms))
    assert world.refusal(token) is AuthFailure.BAD_JWT


MUTATED = {algorithm: World(algorithm) for algorithm in ("ES256", "EdDSA", "RS256")}
TOKENS = {algorithm: world.token() for algorithm, world in MUTATED.items()}


@given(
    algorithm=strategies.sampled_from(sorted(TOKENS)),
    place=strategies.integers(0, 2000),
    character=strategies.one_of(
        strategies.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ \n"),
        strategies.characters(),
    ),
    change=strategies.sampled_from(["replace", "insert", "delete", "swap"]),
)
def test_no_change_of_a_token_proves_anything_else(algorithm: str, place: int, character: str, change: str) -> None:
    world, token = World(algorithm), TOKENS[algorithm]
    place %= len(token)
    if change == "swap":
        changed = token[:place] + token[place + 1 : place + 2] + token[place : place + 1] + token[place + 2 :]
    else:
        left_out = change in {"replace", "delete"}
        changed = token[:place] + (character if change != "delete" else "") + token[place + left_out :]
    if changed == token:
        return
    with pytest.raises(AuthenticationError):
        world.verify(changed)


@given(strategies.text(max_size=300))
def test_no_text_does_more_than_prove_nothing(text: str) -> None:
    with pytest.raises(AuthenticationError):
        MUTATED["ES256"].verify(text)


@given(strategies.binary(max_size=80), strategies.binary(max_size=200), strategies.binary(max_size=80))
def test_no_bytes_do_more_than_prove_nothing(header: bytes, payload: bytes, signature: bytes) -> None:
    with pytest.raises(AuthenticationError):
        MUTATED["ES256"].verify(f"{b64(header)}.{b64(payload)}.{b64(signature)}")


json_values = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda children: (
        strategies.lists(children, max_size=3) | strategies.dictionaries(strategies.text(), children, max_size=3)
    ),
    max_leaves=5,
)


@given(
    name=strategies.sampled_from(["iss", "sub", "aud", "exp", "nbf", "iat", "kubernetes.io", "jti"]), value=json_values
)
def test_no_claim_of_whatever_type_does_more_than_prove_nothing(name: str, value: object) -> None:
    world = MUTATED["EdDSA"]
    token = world.issuer.compact(world.issuer.header(), world.issuer.claims(world.now_ms) | {name: value})
    try:
        proof = world.verify(token)
    except AuthenticationError:
        return
    assert (proof.issuer, proof.namespace, proof.account) == (ISSUER, "inference", "relay")
    assert name not in {"iss", "sub", "aud"}
