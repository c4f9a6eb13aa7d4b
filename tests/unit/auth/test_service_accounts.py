"""A service account is proved by a token that its cluster signed, and by nothing else."""

import json
from typing import Any

import pytest

from poolmuster.auth.service_accounts import CLOCK_SLACK_MS, TOKEN_LIMIT, parse_service_account_token
from poolmuster.model.auth import AuthenticationError, AuthFailure, ServiceAccountCredential
from tests.support.issuer import ACCOUNT, AUDIENCE, ISSUER, NAMESPACE, Issuer, private_key
from tests.unit.auth.accounts import World

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_proves_its_account_whatever_algorithm_of_two_keys_it_is_signed_by(algorithm: str) -> None:
    world = World(algorithm)
    key = world.keys.key("first")
    assert key is not None
    assert world.verify(world.token()) == ServiceAccountCredential(
        issuer=ISSUER,
        namespace=NAMESPACE,
        account=ACCOUNT,
        key=key.thumbprint,
        expires_at_ms=world.now_ms + 3_600_000,
    )


@pytest.mark.parametrize("audience", [AUDIENCE, [AUDIENCE], ["https://kubernetes.default.svc", AUDIENCE]])
def test_the_audience_is_one_of_those_that_the_token_is_made_for(audience: object) -> None:
    world = World()
    assert world.verify(world.token(aud=audience)).account == ACCOUNT


def test_claims_that_only_kubernetes_writes_are_not_needed() -> None:
    world = World()
    assert (
        world.verify(world.token(**{"kubernetes.io": None, "jti": None, "nbf": None, "iat": None})).account == ACCOUNT
    )


def test_a_name_may_be_a_subdomain() -> None:
    world = World()
    world.known = lambda *account: account[2] == "a.b-c.9d"  # type: ignore[method-assign]  # another account is known
    assert world.verify(world.token(sub="system:serviceaccount:ns:a.b-c.9d")).account == "a.b-c.9d"


REFUSED: list[tuple[str, dict[str, Any], AuthFailure]] = [
    ("another issuer", {"iss": "https://other.example"}, AuthFailure.UNKNOWN_ISSUER),
    ("the issuer with a slash", {"iss": ISSUER + "/"}, AuthFailure.UNKNOWN_ISSUER),
    ("the issuer in capitals", {"iss": ISSUER.upper()}, AuthFailure.UNKNOWN_ISSUER),
    ("an issuer that looks alike", {"iss": ISSUER.replace("e", "\u0435")}, AuthFailure.UNKNOWN_ISSUER),
    ("an issuer in full width", {"iss": ISSUER.replace("i", "\uff49")}, AuthFailure.UNKNOWN_ISSUER),
    ("the issuer and a zero", {"iss": ISSUER + "\0"}, AuthFailure.UNKNOWN_ISSUER),
    ("an empty issuer", {"iss": ""}, AuthFailure.UNKNOWN_ISSUER),
    ("no issuer", {"iss": None}, AuthFailure.BAD_JWT),
    ("a list of issuers", {"iss": [ISSUER]}, AuthFailure.BAD_JWT),
    ("another audience", {"aud": ["https://kubernetes.default.svc"]}, AuthFailure.WRONG_AUDIENCE),
    ("no audience", {"aud": None}, AuthFailure.WRONG_AUDIENCE),
    ("an empty list of audiences", {"aud": []}, AuthFailure.WRONG_AUDIENCE),
    ("a part of the audience", {"aud": AUDIENCE[:-1]}, AuthFailure.WRONG_AUDIENCE),
    ("more than the audience", {"aud": AUDIENCE + "s"}, AuthFailure.WRONG_AUDIENCE),
    ("the audience in capitals", {"aud": AUDIENCE.upper()}, AuthFailure.WRONG_AUDIENCE),
    ("an object of audiences", {"aud": {AUDIENCE: AUDIENCE}}, AuthFailure.BAD_JWT),
    ("a list in the list of audiences", {"aud": [[AUDIENCE]]}, AuthFailure.BAD_JWT),
    ("an audience that is no string", {"aud": [AUDIENCE, 1]}, AuthFailure.BAD_JWT),
    ("another account", {"sub": f"system:serviceaccount:{NAMESPACE}:other"}, AuthFailure.UNKNOWN_ACCOUNT),
    ("another namespace", {"sub": f"system:serviceaccount:other:{ACCOUNT}"}, AuthFailure.UNKNOWN_ACCOUNT),
    ("a user", {"sub": "jane@example.com"}, AuthFailure.UNKNOWN_ACCOUNT),
    ("no subject", {"sub": None}, AuthFailure.UNKNOWN_ACCOUNT),
    ("a list of subjects", {"sub": [f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"]}, AuthFailure.UNKNOWN_ACCOUNT),
    ("an empty name", {"sub": f"system:serviceaccount:{NAMESPACE}:"}, AuthFailure.UNKNOWN_ACCOUNT),
    ("one part more", {"sub": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}:x"}, AuthFailure.UNKNOWN_ACCOUNT),
    ("a slash in the name", {"sub": f"system:serviceaccount:{NAMESPACE}:a/b"}, AuthFailure.UNKNOWN_ACCOUNT),
    (
        "a line's end after the name",
        {"sub": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}\n"},
        AuthFailure.UNKNOWN_ACCOUNT,
    ),
    ("a space before it all", {"sub": f" system:serviceaccount:{NAMESPACE}:{ACCOUNT}"}, AuthFailure.UNKNOWN_ACCOUNT),
    ("capitals", {"sub": f"system:serviceaccount:{NAMESPACE.upper()}:{ACCOUNT}"}, AuthFailure.UNKNOWN_ACCOUNT),
    ("a namespace with a dot", {"sub": f"system:serviceaccount:a.b:{ACCOUNT}"}, AuthFailure.UNKNOWN_ACCOUNT),
    (
        "a namespace that looks alike",
        {"sub": f"system:serviceaccount:\u0456nference:{ACCOUNT}"},
        AuthFailure.UNKNOWN_ACCOUNT,
    ),
    ("a namespace of 64", {"sub": f"system:serviceaccount:{'a' * 64}:{ACCOUNT}"}, AuthFailure.UNKNOWN_ACCOUNT),
    ("a name of 254", {"sub": f"system:serviceaccount:{NAMESPACE}:{'a' * 254}"}, AuthFailure.UNKNOWN_ACCOUNT),
    ("a subject without end", {"sub": "system:serviceaccount:" + "a" * 1500}, AuthFailure.UNKNOWN_ACCOUNT),
    (
        "digits of another script",
        {"sub": f"system:serviceaccount:{NAMESPACE}:relay\u0661"},
        AuthFailure.UNKNOWN_ACCOUNT,
    ),
    ("no end", {"exp": None}, AuthFailure.BAD_JWT),
    ("an end as text", {"exp": "4000000000"}, AuthFailure.BAD_JWT),
    ("an end that is true", {"exp": True}, AuthFailure.BAD_JWT),
    ("an end below zero", {"exp": -1}, AuthFailure.BAD_JWT),
    ("an end after all calendars", {"exp": 10**300}, AuthFailure.BAD_JWT),
    ("a list of ends", {"exp": [4_000_000_000]}, AuthFailure.BAD_JWT),
    ("an end that never comes", {"exp": float("inf")}, AuthFailure.BAD_JWT),
    ("an end that is no number", {"exp": float("nan")}, AuthFailure.BAD_JWT),
    ("a beginning as text", {"nbf": "0"}, AuthFailure.BAD_JWT),
    ("a making that is false", {"iat": False}, AuthFailure.BAD_JWT),
]


@pytest.mark.parametrize(("changes", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_token_that_the_issuer_signed_is_refused_for_what_it_says(
    changes: dict[str, Any], reason: AuthFailure
) -> None:
    world = World()
    assert world.refusal(world.token(**changes)) is reason
    assert world.accounts.verifications == 0, "no signature is worth looking at"


def test_a_number_without_end_in_exponents_is_refused() -> None:
    world = World()
    payload = json.dumps(world.issuer.claims(world.now_ms, exp=0)).replace('"exp": 0', '"exp": 1e999')
    assert world.refusal(world.issuer.compact(world.issuer.header(), payload.encode())) is AuthFailure.BAD_JWT


async def test_a_token_counts_until_the_millisecond_of_its_end() -> None:
    world = World()
    token = world.token(exp=world.now_ms // 1000 + 10)
    await world.clock.advance(9_999)
    assert world.verify(token).expires_at_ms == world.now_ms + 1
    await world.clock.advance(1)
    assert world.refusal(token) is AuthFailure.EXPIRED


def test_an_end_may_have_a_fraction() -> None:
    world = World()
    assert world.verify(world.token(exp=world.now_ms / 1000 + 1.5)).expires_at_ms == world.now_ms + 1_500


@pytest.mark.parametrize("claim", ["nbf", "iat"])
def test_a_clock_that_is_ahead_by_the_slack_is_borne_with(claim: str) -> None:
    world = World()
    at_s = (world.now_ms + CLOCK_SLACK_MS) // 1000
    assert world.verify(world.token(**{claim: at_s})).account == ACCOUNT
    assert world.refusal(world.token(**{claim: at_s + 1})) is AuthFailure.NOT_YET_VALID


def test_an_issuer_whose_keys_were_never_read_proves_nobody_and_the_line_says_why() -> None:
    world = World(published=False)
    assert world.refusal(world.token()) is AuthFailure.NO_KEYS


def test_a_key_that_is_not_known_is_looked_for() -> None:
    world = World()
    world.issuer.add("second", number=1)
    token = world.token()
    assert world.refusal(token) is AuthFailure.UNKNOWN_KEY
    assert world.keys.asked == 1
    world.keys.publish()
    assert world.verify(token).account == ACCOUNT


def test_a_proof_is_held_while_its_key_is_published_under_whatever_id() -> None:
    world = World()
    proof = world.verify(world.token())
    world.issuer.add("renamed")
    world.issuer.withdraw("first")
    world.keys.publish()
    assert world.accounts.holds(proof)
    world.issuer.add("second", number=1)
    world.issuer.withdraw("renamed")
    world.keys.publish()
    assert not world.accounts.holds(proof)


def test_a_proof_of_an_issuer_that_is_no_longer_trusted_is_not_held() -> None:
    world = World()
    proof = world.verify(world.token())
    other = World()
    other.accounts.issuers = {}
    assert not other.accounts.holds(proof)


def test_two_issuers_with_the_same_key_id_are_told_apart() -> None:
    world = World()
    stranger = Issuer()
    stranger.keys["first"] = ("ES256", private_key("ES256", 7))
    assert world.refusal(stranger.token(world.now_ms)) is AuthFailure.BAD_SIGNATURE


def test_which_account_is_known_is_asked_before_the_signature_is_looked_at() -> None:
    world = World()
    forged = world.token(sub="system:serviceaccount:kube-system:admin")[:-4] + "AAAA"
    assert world.refusal(forged) is AuthFailure.UNKNOWN_ACCOUNT
    assert world.asked_for == [(ISSUER, "kube-system", "admin")]
    assert world.accounts.verifications == 0


def test_a_token_over_the_limit_is_not_looked_at() -> None:
    world = World()
    assert world.refusal(world.token(padding="x" * TOKEN_LIMIT)) is AuthFailure.BAD_JWT
    assert world.verify(world.token(padding="x" * 1500)).account == ACCOUNT


def test_a_token_taken_apart_does_not_show_itself() -> None:
    world = World()
    token = world.token()
    shown = repr(parse_service_account_token(token))
    assert shown == "ServiceAccountToken('https://issuer.example', inference/relay)"


NO_ACCOUNTS = [
    f"{'a' * 64}:{ACCOUNT}",
    f"{NAMESPACE}:{'a' * 254}",
    f"{NAMESPACE}:a..b",
    f"{NAMESPACE}:-a",
    f"-a:{ACCOUNT}",
]


@pytest.mark.parametrize("account", NO_ACCOUNTS)
def test_names_that_kubernetes_would_not_give_are_none_whoever_knows_them(account: str) -> None:
    world = World()
    with pytest.raises(AuthenticationError) as caught:
        parse_service_account_token(world.token(sub=f"system:serviceaccount:{account}"))
    assert caught.value.reason is AuthFailure.UNKNOWN_ACCOUNT


def test_the_longest_names_of_kubernetes_are_names() -> None:
    found = parse_service_account_token(World().token(sub=f"system:serviceaccount:{'n' * 63}:{'a' * 253}"))
    assert (found.namespace, found.account) == ("n" * 63, "a" * 253)


def test_an_algorithm_that_is_not_ours_is_refused_before_anything_else_is_read() -> None:
    world = World()
    with pytest.raises(AuthenticationError) as caught:
        parse_service_account_token(world.issuer.compact(world.issuer.header(alg="HS256"), b"nothing"))
    assert caught.value.reason is AuthFailure.ALGORITHM


def test_a_token_with_more_members_than_one_needs_is_not_read() -> None:
    world = World()
    assert world.verify(world.token(groups=[str(number) for number in range(20)])).account == ACCOUNT
    assert world.refusal(world.token(groups=[str(number) for number in range(200)])) is AuthFailure.BAD_JWT
    assert world.refusal(world.token(groups=[{} for _ in range(40)])) is AuthFailure.BAD_JWT
