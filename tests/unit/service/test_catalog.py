"""The catalog: what is remembered of removals, clusters and conflicts, and within which bounds."""

import pytest

from poolmuster.model.change import DeregistrationReason, RemovalCause
from poolmuster.service import removals
from tests.support.registrations import deregistration, key, registration
from tests.unit.service.parts import LEASE_MS, Parts

HOUR_MS = 3_600_000


async def end_leases(parts: Parts) -> None:
    """Let a lease pass with the timer ticking, by hand."""
    for _ in range(0, LEASE_MS, 250):
        parts.clock.jump(250)
        parts.tick()


async def test_l10_every_removal_has_its_cause_and_it_is_remembered() -> None:
    parts = Parts()
    await parts.store.put(registration("a", "r"))
    await parts.store.put(registration("b", "r"))
    await parts.store.deregister(deregistration("a", "r", DeregistrationReason.NO_MODELS))
    await end_leases(parts)
    assert [(each.removal.cause, each.removal.reason) for each in parts.changes if each.removal] == [
        (RemovalCause.DEREGISTERED, DeregistrationReason.NO_MODELS),
        (RemovalCause.EXPIRED, None),
    ]
    removal = parts.catalog.lookup(key("b")).removal
    assert removal is not None
    assert removal.cause is RemovalCause.EXPIRED


async def test_a_removal_is_remembered_for_an_hour_or_until_the_pool_is_back() -> None:
    parts = Parts()
    for name in "ab":
        await parts.store.put(registration(name))
        await parts.store.deregister(deregistration(name))
    await parts.store.put(registration("a"))
    assert parts.catalog.lookup(key("a")).removal is None
    parts.clock.jump(HOUR_MS - 1)
    assert parts.catalog.lookup(key("b")).removal is not None
    parts.clock.jump(1)
    assert parts.catalog.lookup(key("b")).removal is None
    parts.tick()
    assert len(parts.catalog._removals) == 0


async def test_removals_are_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removals, "REMOVALS_LIMIT", 3)
    parts = Parts()
    for name in "abcde":
        await parts.store.put(registration(name))
        await parts.store.deregister(deregistration(name))
    assert [name for name in "abcde" if parts.catalog.lookup(key(name)).removal] == ["c", "d", "e"]


async def test_a_pool_removed_again_is_not_the_oldest() -> None:
    parts = Parts()
    for name in "aba":
        await parts.store.put(registration(name))
        await parts.store.deregister(deregistration(name))
    assert [each.dgd_name for each in parts.catalog._removals._removals] == ["b", "a"]


async def test_pools_are_counted_by_cluster() -> None:
    parts = Parts()
    await parts.store.put(registration("a", cluster="one"))
    await parts.store.put(registration("b", cluster="one"))
    await parts.store.put(registration("a", cluster="two"))
    await parts.store.put(registration("a", cluster="one", weight=5))
    assert parts.catalog.leases.group_counts == {"one": 2, "two": 1}
    await end_leases(parts)
    assert parts.catalog.leases.group_counts == {}


async def test_many_leases_that_end_at_once_end_in_several_turns() -> None:
    parts = Parts()
    for number in range(250):
        await parts.store.put(registration(f"{number}"))
    await end_leases(parts)
    assert len(parts.catalog.pools) == 150
    assert parts.catalog.due_ms == parts.clock.monotonic_ms()
    for left in (50, 0):
        parts.tick()
        assert len(parts.catalog.pools) == left


async def test_l3_watchers_are_woken_for_changes_and_not_for_heartbeats() -> None:
    parts = Parts()
    await parts.store.put(registration("a"))
    assert parts.woken == 1
    await parts.store.put(registration("a"))
    assert parts.woken == 1
    await parts.store.put(registration("a", weight=1))
    assert parts.woken == 2


async def test_revisions_grow_by_one_for_each_change() -> None:
    parts = Parts()
    assert parts.catalog.revision == "boot.0"
    await parts.store.put(registration("a"))
    await parts.store.put(registration("a", weight=1))
    await parts.store.put(registration("a", weight=1))
    await parts.store.deregister(deregistration("a"))
    assert [each.number for each in parts.changes] == [1, 2, 3]
    assert parts.catalog.revision == "boot.3"


async def test_l9_a_conflict_is_told_once_with_its_relays_and_shown_with_wall_clock_times() -> None:
    parts = Parts()
    started_at_ms = parts.clock.wall_ms()
    for relay_id in ("A", "B", "A", "B", "A"):
        await parts.store.put(registration("a", relay_id))
        parts.clock.jump(100)
    assert parts.conflicts == [(key("a"), ("A", "B"))]
    conflict = parts.catalog.lookup(key("a")).conflict
    assert conflict is not None
    assert (conflict.since_at_ms, conflict.last_at_ms) == (started_at_ms + 200, started_at_ms + 400)
    assert parts.catalog.conflicts() == {key("a"): conflict}
    assert parts.catalog.lookup(key("b")).conflict is None


async def test_a_lease_is_shown_for_listed_pools_only() -> None:
    parts = Parts()
    await parts.store.put(registration("a", "r"))
    parts.clock.jump(500)
    lease = parts.catalog.lease(key("a"))
    assert lease is not None
    assert (lease.duration_ms, lease.ends_at_ms, lease.relay_id) == (
        LEASE_MS,
        parts.clock.wall_ms() + LEASE_MS - 500,
        "r",
    )
    assert parts.catalog.lease(key("b")) is None
