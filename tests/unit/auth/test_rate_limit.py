"""What wrong signatures may cost is bounded, and a flood of them keeps out as few as can be."""

import itertools

import pytest

from poolmuster.auth.rate_limit import LatestEntries, TokenBucket, VerificationBudget
from poolmuster.model.auth import AuthenticationError, AuthFailure
from tests.support.clock import ManualClock
from tests.support.issuer import ACCOUNT, b64
from tests.unit.auth.accounts import World

COST_US = 70
BURST = 20_000 // COST_US + 1
"""How many wrong signatures by an ES256 key the allowance bears at once; the last overdraws it."""


_numbers = itertools.count(1)


def forged(world: World) -> str:
    """A token that fits in everything but its signature; another each time."""
    token = world.token(**{"kubernetes.io": None})
    return token[: token.rindex(".") + 1] + b64(next(_numbers).to_bytes(64, "big"))


def flood(world: World, count: int) -> list[AuthFailure]:
    reasons = []
    for _ in range(count):
        with pytest.raises(AuthenticationError) as caught:
            world.verify(forged(world))
        reasons.append(caught.value.reason)
    return reasons


def drained() -> World:
    world = World()
    while AuthFailure.BUSY not in flood(world, 1):
        pass
    return world


def test_wrong_signatures_are_looked_at_until_the_allowance_is_spent() -> None:
    world = World()
    reasons = flood(world, BURST + 50)
    assert reasons == [AuthFailure.BAD_SIGNATURE] * BURST + [AuthFailure.BUSY] * 50
    assert world.accounts.verifications == world.accounts.wrong_signatures == BURST
    assert world.accounts.throttled == 50


async def test_the_allowance_grows_back_to_one_percent_of_the_time() -> None:
    world = drained()
    before = world.accounts.verifications
    for _ in range(100):
        await world.clock.advance(100)
        flood(world, 50)
    assert (world.accounts.verifications - before) * COST_US == pytest.approx(0.01 * 10 * 1_000_000, rel=0.02)


def test_right_signatures_cost_nothing_however_many_come_at_once() -> None:
    world = World()
    for number in range(BURST * 2):
        world.verify(world.token(jti=str(number), **{"kubernetes.io": {"pod": {"uid": str(number)}}}))
    assert flood(world, BURST) == [AuthFailure.BAD_SIGNATURE] * BURST


def test_a_pod_that_was_here_before_the_flood_has_its_renewed_token_taken() -> None:
    world = World()
    world.verify(world.token())
    flood(world, BURST + 1)
    assert world.refusal(world.token(**{"kubernetes.io": {"pod": {"uid": "new"}}})) is AuthFailure.BUSY
    assert world.verify(world.token(jti="renewed")).account == ACCOUNT


def test_a_token_without_a_pod_that_was_good_before_the_flood_is_good_in_it() -> None:
    world = World()
    token = world.token(**{"kubernetes.io": None})
    world.verify(token)
    flood(world, BURST + 1)
    assert world.verify(token).account == ACCOUNT
    assert world.refusal(world.token(**{"kubernetes.io": None, "jti": "other"})) is AuthFailure.BUSY


async def test_a_new_pod_has_its_token_taken_soon_after_the_flood() -> None:
    world = drained()
    token = world.token()
    assert world.refusal(token) is AuthFailure.BUSY
    await world.clock.advance(100)
    assert world.verify(token).account == ACCOUNT


def test_a_flood_in_the_name_of_a_pod_spends_only_what_pods_have() -> None:
    world = World()
    world.verify(world.token())
    for number in range(BURST + 10):
        token = world.token(jti=str(number))
        with pytest.raises(AuthenticationError):
            world.verify(token[:-8] + "AAAAAAAA")
    assert world.refusal(world.token(jti="honest")) is AuthFailure.BUSY
    stranger = world.token(**{"kubernetes.io": {"pod": {"uid": "new"}}})
    assert world.verify(stranger).account == ACCOUNT


def test_a_wrong_token_that_comes_again_is_not_looked_at_again() -> None:
    world = World()
    token = forged(world)
    for _ in range(1000):
        assert world.refusal(token) is AuthFailure.BAD_SIGNATURE
    assert world.accounts.verifications == 1


def test_a_token_that_was_refused_is_good_when_its_key_is_published() -> None:
    """As after an issuer was restored: the id of the key is the old one, the key is not."""
    world = World()
    old = world.issuer.keys["first"]
    world.issuer.add("first", number=1)
    token = world.token()
    assert world.refusal(token) is AuthFailure.BAD_SIGNATURE
    world.keys.publish()
    assert world.verify(token).account == ACCOUNT
    world.issuer.keys["first"] = old
    world.keys.publish()
    assert world.refusal(token) is AuthFailure.BAD_SIGNATURE


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rejected: LatestEntries[bytes, int] = LatestEntries(limit=2)
    for digest in (b"a", b"b", b"c"):
        rejected[digest] = 1
    assert len(rejected) == 2
    assert rejected.get(b"a") is None
    assert rejected.get(b"c") == 1
    monkeypatch.setattr("poolmuster.auth.rate_limit.KNOWN_PODS_LIMIT", 2)
    budget = VerificationBudget(ManualClock(), rate_us_per_s=0, burst_us=1)
    for pod in ("a", "b", "a", "c"):
        budget.record_right(pod)
    budget.record_wrong("stranger", 1)
    assert [budget.allows(pod) for pod in ("a", "b", "c")] == [True, False, True]


def test_rejected_tokens_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolmuster.auth.service_accounts.REJECTED_LIMIT", 2)
    world = World()
    first, *others = [forged(world) for _ in range(3)]
    for token in (first, *others, *others):
        world.refusal(token)
    assert world.accounts.verifications == 3
    world.refusal(first)
    assert world.accounts.verifications == 4, "the oldest was evicted"


async def test_an_allowance_never_grows_over_its_burst() -> None:
    clock = ManualClock()
    bucket = TokenBucket(clock, rate_us_per_s=1_000, burst_us=500)
    await clock.advance(3_600_000)
    assert bucket.refill()
    bucket.spend(500)
    assert not bucket.refill()
    await clock.advance(1)
    assert bucket.refill()
