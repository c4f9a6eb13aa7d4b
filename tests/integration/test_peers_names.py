"""Who stands behind the name: addresses that change, resolvers that fail or hang, nobody else, and a load balancer."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet
from tests.support.instances import eventually
from tests.support.name_server import Mood
from tests.support.peers import (
    FOLLOWED_WITHIN_S,
    HEALED_WITHIN_S,
    HEARTBEAT_S,
    INCOMPLETE_WITHIN_S,
    LEASE_S,
    MARGIN,
    NAME,
    PORT,
    TOLD_WITHIN_S,
    Cluster,
    Peer,
    cluster,
    peers,
)
from tests.support.tcp_proxy import Proxy, in_turn
from tests.support.watching import watching

pytestmark = pytest.mark.integration

FOLLOWED_S = FOLLOWED_WITHIN_S * MARGIN
ROLLED_LEASE_S = 10.0
"""So long that what follows in time is told from what a lease ended."""


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with peers(tmp_path, 2) as found:
        yield found


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as found:
        yield found


async def test_p6_an_address_that_comes_is_read_and_one_that_goes_is_forgotten(pair: Cluster) -> None:
    one, two = pair.peers
    async with Fleet(HEARTBEAT_S) as fleet:
        fleet.join(one, "a")
        await pair.agreed((one, two), "a")
        three = await pair.start(await pair.machine())
        assert not await one.reads(three)
        await three.register("b", relay_id="b")
        pair.name(*(peer.machine.address for peer in pair.peers))
        for peer in (one, two):
            await eventually(lambda peer=peer: peer.reads(three), FOLLOWED_S)  # type: ignore[misc]
        await pair.agreed(pair.peers, "a", "b", timeout_s=FOLLOWED_S)
        pair.name(one.machine.address, two.machine.address)
        await three.program.terminate()
        for peer in (one, two):
            await eventually(lambda peer=peer: _forgets(peer, three), FOLLOWED_S)  # type: ignore[misc]
        await pair.agreed((one, two), "a", timeout_s=LEASE_S * MARGIN)


async def _forgets(peer: Peer, other: Peer) -> bool:
    return not any(other.machine.address in each["name"] for each in await peer.sources_of("peer"))


async def test_p6_an_instance_that_comes_back_at_another_address_is_followed(pair: Cluster) -> None:
    one, two = pair.peers
    async with Fleet(HEARTBEAT_S) as fleet:
        fleet.join(one, "a")
        await pair.agreed((one, two), "a")
        machine = await pair.machine()
        await two.program.terminate()
        moved = await pair.start(machine)
        pair.name(one.machine.address, machine.address)
        await eventually(lambda: one.reads(moved), FOLLOWED_S)
        await moved.register("b", relay_id="b")
        await pair.agreed((one, moved), "a", "b", timeout_s=LEASE_S * MARGIN)


@pytest.mark.parametrize("vanishes", [False, True], ids=["whose host lives on", "whose host is gone too"])
async def test_p6_instances_are_replaced_one_by_one_at_other_addresses(tmp_path: Path, vanishes: bool) -> None:
    """As a rolling update does it: a new one first, then an old one stops, and after a while it leaves the name."""
    async with peers(tmp_path, 2, lease_s=ROLLED_LEASE_S) as found, Fleet(HEARTBEAT_S) as fleet:
        old = found.peers[:]
        names = ("a", "b", "c")
        for place, name in enumerate(names):
            fleet.join(old[place % 2], name)
        await found.agreed(old, *names)
        alive = old[:]
        for leaver in old:
            machine = await found.machine()
            alive.append(await found.start(machine))
            found.name(*(peer.machine.address for peer in alive))
            await found.agreed(alive, *names, timeout_s=FOLLOWED_S)
            alive.remove(leaver)
            for name in names:
                fleet.places[name] = alive[-1]
            async with watching(alive[0].url) as watcher:
                await leaver.program.terminate()
                if vanishes:
                    for peer in alive:
                        await found.lan.cut(leaver.machine, peer.machine)
                await asyncio.sleep(1)
                found.name(*(peer.machine.address for peer in alive))
                # A last word that nobody heard may have been about a pool: that is over when its lease is.
                await asyncio.sleep(FOLLOWED_WITHIN_S)
                await found.agreed(alive, *names, timeout_s=FOLLOWED_S + (ROLLED_LEASE_S if vanishes else 0.0))
                assert watcher.movements == []


async def test_p6_addresses_of_both_kinds_are_read(empty: Cluster) -> None:
    one, two = [await empty.machine() for _ in range(2)]
    empty.name(one.address, two.address_6)
    first = await empty.start(one)
    second = await empty.start(two, address=two.address_6)
    await second.register("a", relay_id="a")
    await eventually(lambda: first.lists("a"), LEASE_S * MARGIN)


@pytest.mark.parametrize("mood", [Mood.FAILS, Mood.SILENT])
async def test_p6_a_resolver_that_fails_or_hangs_is_a_source_and_holds_nothing_up(pair: Cluster, mood: Mood) -> None:
    one, two = pair.peers
    async with Fleet(HEARTBEAT_S) as fleet, watching(one.url) as watcher:
        fleet.join(two, "a")
        fleet.join(one, "own")
        await pair.agreed((one, two), "a", "own")
        since = len(watcher.told)
        one.machine.asks.mood = mood
        await eventually(lambda: _dns_failed(one), INCOMPLETE_WITHIN_S * MARGIN)
        assert await two.complete(), "its own resolver answers"
        slowest_s, until_s = 0.0, time.monotonic() + LEASE_S * 2
        while time.monotonic() < until_s:
            started_s = time.monotonic()
            assert await one.pools() == (["a", "own"], False)
            await one.register("own", relay_id="own")
            slowest_s = max(slowest_s, time.monotonic() - started_s)
            await asyncio.sleep(0.1)
        assert slowest_s < 1.0
        told = len(watcher.told)
        started_s = time.monotonic()
        await two.register("b", relay_id="b")
        await watcher.wait(lambda each: each.type == "added", since=told)
        assert time.monotonic() - started_s < TOLD_WITHIN_S * MARGIN * 3, "what is known of peers goes on being told"
        assert "removed" not in [each.type for each in watcher.told[since:]]
        one.machine.asks.mood = Mood.ANSWERS
        await eventually(one.complete, HEALED_WITHIN_S * MARGIN)


async def _dns_failed(peer: Peer) -> bool:
    status, found = await peer.get()
    [source] = [each for each in found["sources"] if each["kind"] == "dns"]
    return (status, found["complete"], source["state"], source["reason"]) == (200, False, "stale", "dns_failed")


async def test_p6_a_resolver_that_never_answered_is_unknown_and_the_list_is_served(empty: Cluster) -> None:
    machine = await empty.machine()
    machine.asks.mood = Mood.SILENT
    alone = await empty.start(machine)
    await alone.register("a", relay_id="a")
    assert await alone.pools() == (["a"], False)
    await asyncio.sleep(LEASE_S)
    [source] = await alone.sources_of("dns")
    assert (source["state"], source["reason"]) == ("unknown", "dns_failed")
    assert not await alone.complete()


@pytest.mark.parametrize("records", ["itself", "nobody"])
async def test_p6_an_instance_that_finds_only_itself_is_a_healthy_cluster_of_one(empty: Cluster, records: str) -> None:
    machine = await empty.machine()
    if records == "itself":
        empty.name(machine.address)
    else:
        del machine.asks.records[NAME]
    alone = await empty.start(machine)
    started_s = time.monotonic()
    await alone.register("a", relay_id="a")
    async with Fleet(HEARTBEAT_S) as fleet:
        fleet.join(alone, "a")
        took_s = await eventually(lambda: alone.lists("a"), LEASE_S * MARGIN)
        assert took_s + time.monotonic() - started_s >= LEASE_S / 2
        assert await alone.sources_of("peer") == []
        assert [each["state"] for each in await alone.sources_of("dns")] == ["fresh"]
        async with alone.session.get("/health/ready") as answer:
            assert answer.status == 200


async def test_p6_fewer_instances_than_expected_are_missing(empty: Cluster) -> None:
    one, two = await empty.started(2, "--peer-expect", "3")
    await asyncio.sleep(LEASE_S + 1)
    for peer in (one, two):
        [source] = await peer.sources_of("dns")
        assert (source["reason"], await peer.complete()) == ("peers_missing", False)
    three = await empty.start(await empty.machine(), "--peer-expect", "3")
    empty.name(*(peer.machine.address for peer in (one, two, three)))
    await empty.agreed((one, two, three), timeout_s=LEASE_S * MARGIN)


async def test_p6_a_load_balancer_behind_the_name_is_recognised_and_named(empty: Cluster) -> None:
    machines = [await empty.machine() for _ in range(3)]
    balancer = await empty.machine()
    empty.name(balancer.address)
    proxy = Proxy(in_turn(*(functools.partial(balancer.connect, each.address, PORT) for each in machines)))
    async with proxy.serving(balancer.listener(PORT)), Fleet(HEARTBEAT_S) as fleet:
        found = await asyncio.gather(*(empty.start(machine) for machine in machines))
        for peer, name in zip(found, "abc", strict=True):
            fleet.join(peer, name)
        named: set[Peer] = set()
        until_s = time.monotonic() + LEASE_S * 5
        while time.monotonic() < until_s:
            for peer in found:
                names, complete = await peer.pools()
                assert names == ["a", "b", "c"] or not complete, "never complete without a live pool"
                if await peer.reason_of(balancer) == "load_balancer":
                    named.add(peer)
            await asyncio.sleep(0.1)
        assert named == set(found)
        empty.name(*(machine.address for machine in machines))
        await empty.agreed(found, "a", "b", "c", timeout_s=LEASE_S * MARGIN)
