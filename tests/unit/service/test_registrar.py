"""The registrar: answers, limits, and what it remembers of bodies."""

import pytest

from poolmuster.model.auth import ANONYMOUS
from poolmuster.model.errors import InvalidInput, LimitReached, RelayDeregistered
from poolmuster.model.registration import Registration, parse_registration
from poolmuster.service.registrar import RegistrarLimits
from poolmuster.sources.memory import EVICT_EVERY_MS
from tests.support.registrations import body, deregistration, key, registration
from tests.unit.service.parts import LEASE_MS, Parts


def limited(pools: int = 1000, pools_per_cluster: int = 500, registrations_bytes: int = 1 << 20) -> Parts:
    return Parts(
        RegistrarLimits(pools=pools, pools_per_cluster=pools_per_cluster, registrations_bytes=registrations_bytes)
    )


async def register(parts: Parts, name: str = "a", cluster: str = "c", **facts: object) -> bool:
    """Register as the interface does. Returns whether the pool was new."""
    return (await parts.registrar.register_body(body(name, cluster, **facts), ANONYMOUS)).created


async def test_the_answer_says_the_terms_of_the_lease_and_whether_the_pool_was_listed() -> None:
    parts = Parts()
    answer, created = await parts.registrar.register(registration("a", "r"), ANONYMOUS)
    assert created
    assert (answer.lease.duration_ms, answer.lease.heartbeat_interval_ms) == (LEASE_MS, 5000)
    assert answer.lease.ends_at_ms == parts.clock.wall_ms() + LEASE_MS
    assert not answer.conflict
    assert not (await parts.registrar.register(registration("a", "r"), ANONYMOUS))[1]
    await parts.registrar.deregister(deregistration("a", "other"), ANONYMOUS)
    assert not (await parts.registrar.register(registration("a", "r2"), ANONYMOUS))[1]
    answer, created = await parts.registrar.register(registration("a", "r"), ANONYMOUS)
    assert answer.conflict
    await parts.registrar.deregister(deregistration("a", "r"), ANONYMOUS)
    with pytest.raises(RelayDeregistered):
        await parts.registrar.register(registration("a", "r"), ANONYMOUS)
    assert (await parts.registrar.register(registration("a", "r3"), ANONYMOUS))[1]


async def test_a_body_taken_before_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    parsed: list[bytes] = []

    def parse(sent: bytes) -> Registration:
        parsed.append(sent)
        return parse_registration(sent)

    monkeypatch.setattr("poolmuster.service.registrar.parse_registration", parse)
    for sent in (body("a"), body("a"), body("b"), body("a"), body("a", weight=1), body("a", weight=1)):
        await parts.registrar.register_body(sent, ANONYMOUS)
    assert parsed == [body("a"), body("b"), body("a", weight=1)]


async def test_a_bad_body_is_refused_each_time() -> None:
    parts = Parts()
    for _ in range(2):
        with pytest.raises(InvalidInput):
            await parts.registrar.register_body(b"{}", ANONYMOUS)


async def test_pools_have_a_limit_and_renewals_and_changes_do_not_meet_it() -> None:
    parts = limited(pools=2)
    await register(parts, "a")
    await register(parts, "b")
    with pytest.raises(LimitReached):
        await register(parts, "c")
    assert [pool.key.dgd_name for pool in parts.catalog.pools] == ["a", "b"]
    assert not await register(parts, "a")
    assert not await register(parts, "a", weight=5)
    await parts.registrar.deregister(deregistration("b"), ANONYMOUS)
    assert await register(parts, "c")


async def test_each_cluster_has_a_limit_of_its_own() -> None:
    parts = limited(pools_per_cluster=1)
    await register(parts, "a", "one")
    await register(parts, "a", "two")
    with pytest.raises(LimitReached, match="cluster"):
        await register(parts, "b", "one")
    assert not await register(parts, "a", "one", weight=1)


async def test_bytes_have_a_limit_that_growth_meets_and_shrinking_does_not() -> None:
    size = registration("a", x="x" * 100).pool.size_bytes
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


async def test_live_pools_are_remembered_whatever_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of a live pool says whom a deregistration must come from."""
    monkeypatch.setattr("poolmuster.registry.relay_records.RECORDS_LIMIT", 3)
    parts = Parts()
    await parts.registrar.register(registration("live", "r"), ANONYMOUS)
    for number in range(20):
        await parts.registrar.register(registration(f"p{number}", "r"), ANONYMOUS)
        await parts.registrar.deregister(deregistration(f"p{number}", "r"), ANONYMOUS)
        await parts.pass_ms(EVICT_EVERY_MS)
    assert len(parts.store) == 3
    await parts.registrar.deregister(deregistration("live", "r"), ANONYMOUS)
    assert parts.catalog.pools.get(key("live")) is None
    with pytest.raises(RelayDeregistered):
        await parts.registrar.register(registration("live", "r"), ANONYMOUS)


def remembered_bytes(parts: Parts) -> int:
    return sum(each.pool.size_bytes for each in parts.registrar._parse_cache.values())


async def test_of_each_pool_one_body_is_remembered_and_none_once_it_has_left() -> None:
    parts = Parts()
    for number in range(100):
        await register(parts, "a", weight=number)
    assert len(parts.registrar._parse_cache) == 1
    await parts.registrar.deregister(deregistration("a"), ANONYMOUS)
    assert (len(parts.registrar._parse_cache), parts.registrar._parse_cache_bytes) == (0, 0)


async def test_what_is_remembered_of_bodies_is_bounded_in_number() -> None:
    parts = limited(pools=10)
    for number in range(30):
        await register(parts, f"p{number}")
        if number % 10 == 9:
            await parts.pass_ms(LEASE_MS)
    assert len(parts.registrar._parse_cache) == 10


async def test_what_is_remembered_of_bodies_is_bounded_in_bytes() -> None:
    """Pools may come, be large and leave unheard, faster than their registrations are forgotten."""
    parts = limited(registrations_bytes=100_000)
    for number in range(30):
        await register(parts, f"p{number}", x="x" * 50_000)
        await parts.pass_ms(LEASE_MS)
        assert remembered_bytes(parts) == parts.registrar._parse_cache_bytes <= 100_000


async def test_what_was_refused_is_not_remembered() -> None:
    parts = limited(registrations_bytes=100_000)
    with pytest.raises(LimitReached):
        await register(parts, "a", x="x" * 200_000)
    assert remembered_bytes(parts) == 0


async def test_names_count_for_what_they_take_in_memory() -> None:
    """A body of short aliases takes ten times its length."""
    parts = limited(registrations_bytes=1_000_000)
    models = [{"id": "m", "aliases": [f"{number:x}" for number in range(20_000)]}]
    assert len(body("a", models=models)) < 200_000
    with pytest.raises(LimitReached):
        await register(parts, "a", models=models)


async def test_what_is_stored_and_not_listed_yet_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is read once a second lags: many relays may come within that second."""
    size = registration("p0").pool.size_bytes
    for bound in (limited(pools=3), limited(pools_per_cluster=3), limited(registrations_bytes=7 * size // 2)):

        async def put(_: object) -> None:
            """Stored, and read by nobody yet."""

        with monkeypatch.context() as patch:
            patch.setattr(bound.store, "put", put)
            found = [await bound.registrar.register(registration(f"p{number}"), ANONYMOUS) for number in range(3)]
            assert all(created for _, created in found)
            with pytest.raises(LimitReached):
                await bound.registrar.register(registration("p3"), ANONYMOUS)
            assert (await bound.registrar.register(registration("p0"), ANONYMOUS))[1], "it may be sent again"
        await bound.pass_ms(LEASE_MS)
        await bound.registrar.register(registration("p3"), ANONYMOUS)
