"""Stores with peers on one network: real links, real feeds, time that a test moves."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import pairwise

import msgspec
import pytest

from poolmuster.model.source import SourceReason, SourceState
from poolmuster.replication.messages import Delta, Registered, Snapshot, SyncSummary
from poolmuster.sources.peers import connection
from poolmuster.sources.peers.codec import encode
from poolmuster.sources.peers.dns import ServiceName
from poolmuster.sources.peers.transport import FEED_PATH, LIST_PATH, STREAM_PATH
from tests.support.peer_network import HEARTBEAT_MS, LEASE_MS, Net, Node, nodes
from tests.support.registrations import body, key
from tests.support.slow_sink import SlowSink

ADDRESS, BOOT_ID = "10.0.0.66:80", "behaved"


def snapshot_line(name: str, *, more: bool = False, trusted: bool = True) -> bytes:
    """A part of a snapshot with one pool."""
    summary = SyncSummary(warmed_up=trusted, names_resolved=trusted)
    raw = msgspec.Raw(body(name))
    entries = (Registered(number=0, registration=raw, lease_ms=2 * LEASE_MS, remaining_ms=2 * LEASE_MS),)
    message = Snapshot(boot_id=BOOT_ID, uptime_ms=9, sent_ms=9, more=more, summary=summary, entries=entries)
    return encode(message) + b"\n"


def requests_to(node: Node, address: str) -> list[tuple[int, str]]:
    """The time and the path of each request of ``node`` to ``address``."""
    return [(at_ms, path) for at_ms, peer, path in node.network.requests if peer.address == address]


def ping(net: Net, *, trusted: bool) -> bytes:
    """A delta without entries."""
    summary = SyncSummary(warmed_up=trusted, names_resolved=trusted)
    delta = Delta(boot_id=BOOT_ID, uptime_ms=9, sent_ms=net.clock.monotonic_ms(), after=0, seq=0, summary=summary)
    return encode(delta) + b"\n"


async def keep_alive(net: Net, *pools: tuple[Node, str], for_ms: int) -> None:
    """Let time pass with a heartbeat of each pool every interval."""
    for _ in range(for_ms // HEARTBEAT_MS):
        for node, name in pools:
            await node.put(name)
        await net.advance(HEARTBEAT_MS)


async def test_what_is_registered_at_one_is_listed_by_all_at_once() -> None:
    async with nodes(3) as (_, found):
        await found[0].put("a")
        await found[1].put("b")
        assert [node.listed for node in found] == [["a", "b"]] * 3
        await found[2].put("a", weight=5)
        assert len({b",".join(pool.body for pool in node.catalog.pools) for node in found}) == 1


async def test_what_leaves_at_one_leaves_all_at_once() -> None:
    async with nodes(3) as (_, found):
        await found[0].put("a")
        await found[1].leave("a", "r")
        assert [node.listed for node in found] == [[]] * 3


async def test_instances_that_start_together_are_complete_after_one_lease_and_not_before() -> None:
    async with nodes(3) as (net, found):
        await net.advance(LEASE_MS - 1_200)
        assert [node.complete for node in found] == [False] * 3
        await net.advance(400)
        assert [node.complete for node in found] == [True] * 3


async def test_one_that_restarts_is_complete_at_once_with_all_that_was_registered_with_it_before() -> None:
    async with nodes(3) as (net, found):
        await keep_alive(net, (found[0], "a"), (found[1], "b"), for_ms=20_000)
        await found[0].kill()
        await net.advance(500)
        restarted = Node(net, found[0].address, "again")
        await restarted.start()
        await net.advance(300)
        assert (restarted.listed, restarted.complete) == (["a", "b"], True)
        assert [node.complete for node in found[1:]] == [True, True]


async def test_of_one_that_is_killed_the_pools_go_with_their_leases_and_then_it_does_not_count() -> None:
    async with nodes(2) as (net, found):
        await keep_alive(net, (found[0], "a"), (found[1], "b"), for_ms=20_000)
        await found[0].put("a")
        await net.advance(300)
        await found[0].kill()
        await net.advance(500)
        assert found[1].troubles == {found[0].address: "unreachable"}
        await found[1].put("b")
        await net.advance(LEASE_MS - 1_500)
        assert found[1].listed == ["a", "b"]
        await net.advance(1_400)
        assert (found[1].listed, found[1].complete) == (["b"], True)


async def test_one_that_is_silent_is_named_within_three_seconds_and_read_again_within_two() -> None:
    async with nodes(2) as (net, found):
        await keep_alive(net, (found[0], "a"), for_ms=20_000)
        net.cut(found[0].address)
        await net.advance(3_100)
        assert found[1].troubles == {found[0].address: "timeout"}
        assert found[1].listed == ["a"]
        net.heal()
        await net.advance(2_000)
        assert found[1].complete
        assert found[0].complete


async def test_where_streams_fail_it_is_read_once_a_second() -> None:
    async with nodes(2) as (net, found):
        net.no_streams.update(node.address for node in found)
        net.cut(found[0].address)
        await net.advance(4_000)
        net.heal()
        await net.advance(20_000)
        net.asked.clear()
        await net.advance(10_000)
        assert found[0].complete
        assert found[1].complete
        polls = [asked for asked in net.asked if asked == (found[0].address, FEED_PATH)]
        streams = [asked for asked in net.asked if asked == (found[0].address, STREAM_PATH)]
        assert len(polls) >= 8
        assert 1 <= len(streams) <= 2
        for number in range(5):
            await found[0].put(f"p{number}")
            await net.advance(1_200)
            assert f"p{number}" in found[1].listed


async def test_streams_are_used_again_once_they_can_be_had() -> None:
    async with nodes(2) as (net, found):
        net.no_streams.update(node.address for node in found)
        net.cut(found[0].address)
        await net.advance(4_000)
        net.heal()
        await net.advance(10_000)
        net.no_streams.clear()
        await net.advance(12_000)
        await found[0].put("a")
        assert found[1].listed == ["a"]


async def test_an_address_of_several_instances_is_named_as_a_load_balancers() -> None:
    async with nodes(2) as (net, found):
        await net.advance(LEASE_MS)
        net.balanced["10.9.9.9:80"] = [node.address for node in found]
        net.named = {"10.9.9.9:80"}
        await net.advance(30_000)
        for node in found:
            assert node.troubles == {"10.9.9.9:80": "load_balancer"}


async def test_two_that_take_turns_behind_a_stream_are_found_out_by_asking_who_is_there() -> None:
    async with nodes(3) as (net, found):
        await net.advance(LEASE_MS)
        net.balanced["10.9.9.9:80"] = [found[1].address, found[2].address]
        net.named = {found[0].address, "10.9.9.9:80"}
        await net.advance(40_000)
        assert found[0].sources["10.9.9.9:80"].reason is SourceReason.LOAD_BALANCER


async def test_a_load_balancer_is_named_within_three_seconds_and_meanwhile_no_stream_is_tried() -> None:
    async with nodes(3) as (net, found):
        await net.advance(LEASE_MS)
        address = "10.9.9.9:80"
        net.balanced[address], net.alternates = [found[1].address, found[2].address], True
        net.named = {found[0].address, address}
        await net.advance(4_000)
        requests = requests_to(found[0], address)
        assert requests[0][1] == STREAM_PATH
        assert found[0].sources[address].reason is SourceReason.LOAD_BALANCER
        assert net.clock.monotonic_ms() - requests[0][0] <= 4_000
        suspected_ms = next(at_ms for at_ms, path in requests if path == FEED_PATH)
        during = [path for at_ms, path in requests if suspected_ms <= at_ms < suspected_ms + 2_500]
        assert during == [FEED_PATH] * 10, "one each quarter of a second, and no stream"


async def test_a_peer_counts_as_soon_as_its_message_is_applied() -> None:
    async with nodes(1) as (net, found):
        await net.advance(LEASE_MS)
        arrived = asyncio.Event()

        async def behave(path: str) -> AsyncGenerator[bytes, None]:
            await arrived.wait()
            yield ping(net, trusted=True)
            await asyncio.Event().wait()

        net.behaviour[ADDRESS] = behave
        net.named.add(ADDRESS)
        await net.advance(1_000)
        assert (found[0].complete, found[0].sources[ADDRESS].state) == (False, SourceState.UNKNOWN)
        arrived.set()
        await net.settle()
        assert (found[0].complete, found[0].sources[ADDRESS].state) == (True, SourceState.FRESH)


async def test_several_deltas_of_a_stream_are_one_good_read() -> None:
    async with nodes(1) as (net, found):

        async def behave(path: str) -> AsyncGenerator[bytes, None]:
            while True:
                yield ping(net, trusted=True)
                await net.clock.sleep_ms(500)

        await net.advance(1_000)
        found[0].notes.outcomes.clear()
        net.behaviour[ADDRESS] = behave
        net.named.add(ADDRESS)
        await net.advance(3_000)
        assert found[0].notes.messages.count(("in", "delta")) >= 4
        assert found[0].notes.outcomes == ["good"]


async def test_a_snapshot_may_take_longer_than_a_peer_may_be_silent() -> None:
    async with nodes(1) as (net, found):

        async def behave(path: str) -> AsyncGenerator[bytes, None]:
            if path != LIST_PATH:
                yield ping(net, trusted=True)
                await asyncio.Event().wait()
            for number in range(10):
                yield snapshot_line(f"p{number}", more=True)
                await net.clock.sleep_ms(1_000)
            yield snapshot_line("last", more=False)

        net.behaviour[ADDRESS] = behave
        net.named.add(ADDRESS)
        await net.advance(12_000)
        assert found[0].listed == ["last", *(f"p{number}" for number in range(10))]
        assert net.asked.count((ADDRESS, LIST_PATH)) == 1


async def test_of_an_unending_snapshot_only_so_many_lines_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RESPONSE_LINES_LIMIT", 50)
    async with nodes(1) as (net, found):

        async def behave(path: str) -> AsyncGenerator[bytes, None]:
            if path != LIST_PATH:
                yield ping(net, trusted=True)
                await asyncio.Event().wait()
            while True:
                yield snapshot_line("a", more=True)

        net.behaviour[ADDRESS] = behave
        net.named.add(ADDRESS)
        await net.advance(1_500)
        assert found[0].notes.outcomes.count("bad_answer") == 1
        assert found[0].notes.messages.count(("in", "snapshot")) == 51


async def test_a_snapshot_is_taken_again_once_its_peer_can_be_trusted() -> None:
    async with nodes(1) as (net, found):
        trusted = False

        async def behave(path: str) -> AsyncGenerator[bytes, None]:
            if path == LIST_PATH:
                yield snapshot_line("a", trusted=trusted)
                return
            while True:
                yield ping(net, trusted=trusted)
                await net.clock.sleep_ms(500)

        net.behaviour[ADDRESS] = behave
        net.named.add(ADDRESS)
        await net.advance(5_000)
        assert net.asked.count((ADDRESS, LIST_PATH)) == 1
        assert not found[0].complete
        trusted = True
        await net.advance(600)
        assert net.asked.count((ADDRESS, LIST_PATH)) == 2
        assert found[0].complete


async def test_a_poll_counts_from_the_start_of_its_request() -> None:
    async with nodes(1) as (net, found):

        async def behave(path: str) -> AsyncGenerator[bytes, None]:
            if path == FEED_PATH:
                await net.clock.sleep_ms(2_000)
                summary = SyncSummary(warmed_up=True, names_resolved=True)
                entry = Registered(
                    number=1, registration=msgspec.Raw(body("a")), lease_ms=LEASE_MS, remaining_ms=LEASE_MS
                )
                delta = Delta(
                    boot_id=BOOT_ID, uptime_ms=9, sent_ms=9, after=0, seq=1, summary=summary, entries=(entry,)
                )
                yield encode(delta) + b"\n"
                return
            await asyncio.Event().wait()

        net.behaviour[ADDRESS] = behave
        net.named.add(ADDRESS)
        while not found[0].listed:
            await net.advance(50)
        lease = found[0].catalog.lease(key("a"))
        assert lease is not None
        assert lease.ends_at_ms - found[0].clock.wall_ms() <= LEASE_MS - 2_000


async def test_one_stream_is_tried_at_a_time() -> None:
    async with nodes(2) as (net, found):
        net.no_streams.update(node.address for node in found)
        net.cut(found[0].address)
        await net.advance(4_000)
        net.heal()
        await net.advance(15_000)
        times_ms = [at_ms for at_ms, path in requests_to(found[1], found[0].address) if path == STREAM_PATH]
        assert len(times_ms) >= 4
        assert min(after - before for before, after in pairwise(times_ms[1:])) >= 2_000


async def test_after_an_outage_a_stream_is_tried_with_the_first_good_poll() -> None:
    async with nodes(2) as (net, found):
        net.no_streams.update(node.address for node in found)
        net.cut(found[0].address)
        await net.advance(40_000)
        net.no_streams.clear()
        net.heal()
        await net.advance(1_000)
        await found[0].put("a")
        assert found[1].listed == ["a"]


async def test_a_connection_that_failed_is_started_again() -> None:
    async with nodes(2) as (net, found):
        await net.advance(LEASE_MS)
        address = found[1].address
        broken = found[0].store._running[address].connection
        broken._schedule = None  # type: ignore[assignment]
        await found[1].kill()
        await net.advance(200)
        assert found[0].store._running[address].task.done()
        await Node(net, address, "again").start()
        await net.advance(2_000)
        assert found[0].store._running[address].connection is not broken
        assert (found[0].running, found[0].complete) == (True, True)


async def test_an_address_under_another_name_is_read_by_the_host_of_that_name() -> None:
    async with nodes(2) as (net, found):
        found[0].store._hosts[ServiceName("other.test", 80)] = {found[1].address: "other.test"}
        await net.advance(2_000)
        hosts = [peer.host for _, peer, _ in found[0].network.requests if peer.address == found[1].address]
        assert (hosts[0], hosts[-1]) == ("peers.test", "other.test")
        await found[1].put("a")
        assert found[0].listed == ["a"]


async def test_what_a_slow_list_did_not_apply_yet_does_not_count_and_is_not_lost() -> None:
    async with nodes(2) as (net, found):
        await net.advance(LEASE_MS)
        assert found[0].complete
        sink = found[0].store._node.sink = SlowSink(found[0].world.sink)
        sink.hold()
        await found[1].put("a")
        waited_ms = 0
        while waited_ms < 10_000:
            await net.advance(500)
            waited_ms += 500
            assert waited_ms <= 3_000 or not found[0].complete
        assert net.asked.count((found[1].address, STREAM_PATH)) > 1, "reads were given up meanwhile"
        assert found[0].listed == []
        sink.release()
        await net.settle()
        assert found[0].listed == ["a"]
        await net.advance(3_000)
        assert found[0].complete
