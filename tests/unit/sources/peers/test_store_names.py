"""Names, credentials, renewals and ends: a store with peers on a network of the test's own."""

import asyncio

import pytest

from poolmuster.model.source import SourceReason, SourceState
from poolmuster.sources.peers.errors import PeerReadError, ResolverError
from tests.support.peer_network import HEARTBEAT_MS, LEASE_MS, Node, nodes
from tests.support.registrations import key, registration
from tests.unit.sources.peers.test_store import keep_alive


async def test_an_instance_that_finds_only_itself_is_complete_after_a_lease() -> None:
    async with nodes(1) as (net, found):
        await net.advance(LEASE_MS)
        assert found[0].complete
        assert set(found[0].sources) == {"memory", "peers.test:80"}


async def test_so_is_one_whose_name_has_no_addresses() -> None:
    async with nodes(1) as (net, found):
        net.named.clear()
        await net.advance(LEASE_MS)
        assert found[0].complete


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_resolver_that_fails_or_hangs_is_named_and_holds_nothing_up(hangs: bool) -> None:
    async with nodes(2) as (net, found):
        await net.advance(LEASE_MS)
        net.resolver_hangs, net.resolver_trouble = hangs, ResolverError("It is down.")
        await net.advance(3_500)
        assert found[0].sources["peers.test:80"].reason is SourceReason.DNS_FAILED
        await found[0].put("a")
        assert found[1].listed == ["a"]
        net.resolver_hangs, net.resolver_trouble = False, None
        await net.advance(2_000)
        assert found[0].complete


async def test_whatever_a_resolver_does_ends_no_instance() -> None:
    async with nodes(1) as (net, found):
        net.resolver_trouble = ZeroDivisionError("what is that?")
        await net.advance(5_000)
        assert found[0].running
        assert "ZeroDivisionError" in str(found[0].sources["peers.test:80"].detail)


async def test_an_address_that_comes_or_goes_is_followed_within_two_seconds() -> None:
    async with nodes(1) as (net, found):
        await net.advance(LEASE_MS)
        other = await Node(net, "10.0.0.7:80", "other").start()
        await other.put("x")
        await net.advance(2_000)
        assert found[0].listed == ["x"]
        await other.kill()
        net.named.discard(other.address)
        await net.advance(LEASE_MS + 2_000)
        assert found[0].complete
        assert other.address not in found[0].sources
        net.asked.clear()
        await net.advance(2_000)
        assert other.address not in {address for address, _ in net.asked}


async def test_fewer_instances_than_are_expected_are_said_to_be_missing() -> None:
    async with nodes(2, expect=3) as (net, found):
        await net.advance(LEASE_MS)
        assert found[0].troubles == {"peers.test:80": "peers_missing"}
        await Node(net, "10.0.0.3:80", "third").start()
        await net.advance(2_000)
        assert found[0].complete


async def test_a_peer_that_accepts_no_credentials_is_named_so() -> None:
    async with nodes(2) as (net, found):
        net.trouble[found[0].address] = PeerReadError(SourceReason.FORBIDDEN, "No.")
        await found[0].kill()
        await Node(net, found[0].address, "again").start()
        await net.advance(4_000)
        source = found[1].sources[found[0].address]
        assert (source.state, source.reason, source.detail) == (SourceState.STALE, SourceReason.FORBIDDEN, "No.")


async def test_renewals_go_together_and_changes_at_once() -> None:
    async with nodes(2) as (net, found):
        for number in range(50):
            await found[0].put(f"{number}")
        found[0].notes.messages.clear()
        for number in range(50):
            await found[0].put(f"{number}")
        assert found[0].notes.messages == []
        await net.advance(250)
        told = found[0].notes.messages.count(("out", "delta"))
        assert 1 <= told <= 2, "once to the peer, and perhaps to itself"
        await found[0].put("0", weight=7)
        assert found[0].notes.messages.count(("out", "delta")) == told + 1
        assert max(found[1].notes.lags_ms) <= 300


async def test_many_pools_come_in_short_messages_and_all_arrive() -> None:
    async with nodes(1) as (net, found):
        for number in range(500):
            await found[0].store.put(registration(f"{number:03}", "r"))
        other = await Node(net, "10.0.0.2:80", "other").start()
        await net.advance(2_000)
        assert len(other.listed) == 500
        assert other.notes.messages.count(("in", "snapshot")) == 20
        assert other.notes.messages.count(("in", "delta")) >= 20
        assert other.notes.lags_ms == [], "what was registered before the first read came late by nothing"


async def test_a_pause_of_one_instance_loses_no_pool_anywhere() -> None:
    async with nodes(2) as (net, found):
        await keep_alive(net, (found[0], "a"), (found[1], "b"), for_ms=20_000)
        net.clock.jump(60_000)
        await net.advance(500)
        await keep_alive(net, (found[0], "a"), (found[1], "b"), for_ms=20_000)
        assert [node.listed for node in found] == [["a", "b"]] * 2
        for node in found:
            assert not [change for change in node.changes if change.kind == "removed"]


async def test_nothing_is_left_of_a_store_that_was_ended() -> None:
    before = asyncio.all_tasks()
    async with nodes(3) as (net, _):
        await net.advance(7_000)
    assert asyncio.all_tasks() == before


async def test_a_relay_that_hops_at_every_heartbeat_is_one_pool_and_no_event() -> None:
    async with nodes(3) as (net, found):
        await found[0].put("a")
        for beat in range(20):
            await net.advance(HEARTBEAT_MS)
            await found[beat % 3].put("a")
        for node in found:
            assert [f"{change.kind}" for change in node.changes if change.kind != "completeness"] == ["added"]
            assert node.catalog.conflicts() == {}


async def test_a_split_that_heals_brings_nothing_back_and_loses_nothing() -> None:
    async with nodes(2) as (net, found):
        await keep_alive(net, (found[0], "a"), (found[0], "b"), (found[1], "c"), for_ms=20_000)
        net.cut(found[0].address)
        await found[0].leave("a", "r")
        for _ in range(3):
            await found[0].put("b")
            await found[1].put("c")
            await net.advance(HEARTBEAT_MS)
        assert (found[0].listed, found[1].listed) == (["b"], ["c"])
        net.heal()
        await net.advance(2_000)
        assert [node.listed for node in found] == [["b", "c"]] * 2
        assert [node.complete for node in found] == [True] * 2
        added = [change.after.key.dgd_name for change in found[1].changes if change.kind == "added" and change.after]
        assert added.count("a") == 1


async def test_while_a_stream_is_tried_beside_reading_no_word_is_missing() -> None:
    async with nodes(2) as (net, found):
        await net.advance(LEASE_MS)
        net.no_streams.update(node.address for node in found)
        net.cut(found[0].address)
        await net.advance(4_000)
        net.heal()
        await net.advance(2_000)
        for number in range(25):
            assert found[1].complete
            await found[0].put("a", weight=number)
            await net.advance(1_200)
            pool = found[1].catalog.pools.get(key("a"))
            assert pool is not None
            assert pool.document["weight"] == number
