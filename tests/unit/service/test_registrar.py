"""The registrar: answers, limits, and what it remembers of bodies."""

import pytest

from poolmuster.model.errors import InvalidInput, LimitReached, RelayLeft
from poolmuster.service.registrar import RegistrarLimits
from tests.support.registrations import body, departure, registration
from tests.unit.service.parts import LEASE_MS, Parts


def limited(pools: int = 1000, pools_per_cluster: int = 500, registrations_bytes: int = 1 << 20) -> Parts:
    return Parts(
        RegistrarLimits(pools=pools, pools_per_cluster=pools_per_cluster, registrations_bytes=registrations_bytes)
    )


async def register(parts: Parts, name: str = "a", cluster: str = "c", **facts: object) -> bool:
    """Register as the interface does. Returns whether the pool was new."""
    _, created = await parts.registrar.register(parts.registrar.parse(body(name, cluster, **facts)))
    return created


async def test_the_answer_says_the_terms_of_the_lease_and_whether_the_pool_was_listed() -> None:
    parts = Parts()
    answer, created = await parts.registrar.register(registration("a", "r"))
    assert created
    assert (answer.lease.duration_ms, answer.lease.heartbeat_interval_ms) == (LEASE_MS, 5000)
    assert answer.lease.ends_at_ms == parts.clock.wall_ms() + LEASE_MS
    assert not answer.conflict
    assert not (await parts.registrar.register(registration("a", "r")))[1]
    await parts.registrar.deregister(departure("a", "other"))
    assert not (await parts.registrar.register(registration("a", "r2")))[1]
    answer, created = await parts.registrar.register(registration("a", "r"))
    assert answer.conflict
    await parts.registrar.deregister(departure("a", "r"))
    with pytest.raises(RelayLeft):
        await parts.registrar.register(registration("a", "r"))
    assert (await parts.registrar.register(registration("a", "r3")))[1]


async def test_a_body_seen_before_is_not_parsed_again() -> None:
    parts = Parts()
    assert parts.registrar.parse(body("a")) is parts.registrar.parse(body("a"))
    assert parts.registrar.parse(body("a")) is not parts.registrar.parse(body("a", weight=1))


async def test_a_bad_body_is_refused_each_time() -> None:
    parts = Parts()
    for _ in range(2):
        with pytest.raises(InvalidInput):
            parts.registrar.parse(b"{}")


async def test_pools_have_a_limit_and_renewals_and_changes_do_not_meet_it() -> None:
    parts = limited(pools=2)
    await register(parts, "a")
    await register(parts, "b")
    with pytest.raises(LimitReached):
        await register(parts, "c")
    assert [pool.key.dgd_name for pool in parts.projection.listing] == ["a", "b"]
    assert not await register(parts, "a")
    assert not await register(parts, "a", weight=5)
    await parts.registrar.deregister(departure("b"))
    assert await register(parts, "c")


async def test_each_cluster_has_a_limit_of_its_own() -> None:
    parts = limited(pools_per_cluster=1)
    await register(parts, "a", "one")
    await register(parts, "a", "two")
    with pytest.raises(LimitReached, match="cluster"):
        await register(parts, "b", "one")
    assert not await register(parts, "a", "one", weight=1)


async def test_bytes_have_a_limit_that_growth_meets_and_shrinking_does_not() -> None:
    size = len(registration("a", x="x" * 100).pool.body)
    parts = limited(registrations_bytes=size + 10)
    await register(parts, "a", x="x" * 100)
    assert not await register(parts, "a", x="x" * 110)
    with pytest.raises(LimitReached, match="bytes"):
        await register(parts, "a", x="x" * 111)
    with pytest.raises(LimitReached, match="bytes"):
        await register(parts, "b")
    assert not await register(parts, "a", x="x" * 110), "a renewal is not refused, full or not"
    assert not await register(parts, "a", x="x")
    assert await register(parts, "b")


async def test_what_is_remembered_of_bodies_is_bounded_in_number() -> None:
    parts = limited(pools=10)
    for number in range(100):
        parts.registrar.parse(body("a", weight=number))
    assert len(parts.registrar._parsed) <= 10


async def test_what_is_remembered_of_bodies_is_bounded_in_bytes() -> None:
    """Whoever may register could send a new large body each time, and never be listed with any of them."""
    parts = limited(registrations_bytes=100_000)
    for number in range(100):
        parts.registrar.parse(body("a", weight=number, x="x" * 10_000))
    held = sum(len(each.pool.body) for each in parts.registrar._parsed.values())
    assert held <= 100_000
    large = body("a", x="x" * 200_000)
    assert parts.registrar.parse(large).pool.body == parts.registrar.parse(large).pool.body
    assert sum(len(each.pool.body) for each in parts.registrar._parsed.values()) <= 100_000
