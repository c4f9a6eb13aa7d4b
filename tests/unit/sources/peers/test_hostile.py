"""Peers that lie, babble, stall or break: no instance ends, blocks or grows for what another says."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest

from poolmuster.model.source import SourceReason
from poolmuster.replication.messages import (
    ENTRIES_LIMIT,
    Delta,
    Deregistered,
    MemberSummary,
    Registered,
    Renewed,
    Snapshot,
    SyncSummary,
)
from poolmuster.sources.peers.codec import LINE_LIMIT_BYTES, decode_delta
from poolmuster.sources.peers.transport import LIST_PATH
from tests.support.peer_network import LEASE_MS, Behaviour, Net, Node, nodes
from tests.support.registrations import body

ADDRESS = "10.0.0.66:80"
SURE = SyncSummary(warmed_up=True, names_resolved=True)


def batch(*entries: Any, **facts: Any) -> bytes:
    message = Delta(boot_id="evil", uptime_ms=1, sent_ms=1, after=0, seq=9, summary=SURE, entries=entries)
    return msgspec.json.encode(msgspec.structs.replace(message, **facts)) + b"\n"


def registered(name: str = "x", number: int = 1, **facts: Any) -> Registered:
    raw = msgspec.Raw(body(name))
    entry = Registered(number=number, registration=raw, relay_id="r", lease_ms=LEASE_MS, remaining_ms=LEASE_MS)
    return msgspec.structs.replace(entry, **facts)


def says(*lines: bytes) -> Behaviour:
    """Speak these lines to every question, and then nothing."""

    async def behave(path: str) -> AsyncGenerator[bytes, None]:
        for line in lines:
            yield line
        await asyncio.Event().wait()

    return behave


def left(**facts: Any) -> Deregistered:
    entry = Deregistered(cluster_id="c", namespace="n", dgd_name="a", since_ms=1, ended_since_ms=1, kept_ms=1)
    return msgspec.structs.replace(entry, **facts)


async def meets(behaviour: Behaviour, for_ms: int = 5_000) -> tuple[Net, Node]:
    """An instance that has met such a peer for a while, and lives on."""
    async with nodes(1) as (net, found):
        await found[0].put("mine")
        net.behaviour[ADDRESS] = behaviour
        net.named.add(ADDRESS)
        await net.advance(for_ms)
        assert found[0].running
        assert "mine" in found[0].listed
        assert not found[0].complete
    return net, found[0]


BAD: dict[str, bytes] = {
    "no JSON": b"hello\n",
    "HTML": b"<html>\n",
    "another shape": b'{"boot_id": 7}\n',
    "nested": b"[" * 100_000 + b"\n",
    "not UTF-8": b'{"boot_id": "\xff"}\n',
    "no boot": batch(boot_id=""),
    "a number below 0": batch(after=-1),
    "numbers that go back": batch(after=10, seq=9),
    "a clock beyond all clocks": batch(sent_ms=2**60),
    "a clock at the limit": batch(sent_ms=2**53),
    "a clock at the lower limit": batch(sent_ms=-(2**53)),
    "a number at the limit": batch(seq=2**53),
    "an age at the limit": batch(uptime_ms=2**53),
    "younger than nothing": batch(uptime_ms=-1),
    "a lease of a year": batch(registered(lease_ms=31_536_000_000)),
    "no lease": batch(registered(lease_ms=0)),
    "an uncertainty below 0": batch(registered(uncertainty_ms=-1)),
    "more than remains": batch(registered(remaining_ms=10 * LEASE_MS)),
    "a relay's id without end": batch(registered(relay_id="r" * 5_000)),
    "a detail without end": batch(left(detail="d" * 5_000)),
    "kept for ever": batch(left(kept_ms=2**50)),
    "left in the far future": batch(left(since_ms=-10_000_000)),
    "too many entries": batch(*(Renewed(number=1, remaining_ms=1) for _ in range(ENTRIES_LIMIT + 1))),
    "a row of the future": batch(
        summary=SyncSummary(
            warmed_up=True,
            names_resolved=True,
            members=(MemberSummary(address="a", synced_ms_ago=-5, synced=True),),
        )
    ),
    "a line without end": b"x" * (LINE_LIMIT_BYTES + 1),
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
async def test_what_no_instance_says_is_a_bad_answer(line: bytes) -> None:
    async with nodes(1) as (net, found):
        net.behaviour[ADDRESS] = says(line)
        net.named.add(ADDRESS)
        await net.advance(1_000)
        source = found[0].sources[ADDRESS]
        assert (source.reason, found[0].running) == (SourceReason.BAD_ANSWER, True)
        assert found[0].notes.outcomes.count("bad_answer") <= 5, "there is a pause after each"


def test_the_last_integers_below_the_limit_are_valid() -> None:
    last = 2**53 - 1
    for sent_ms in (last, -last):
        delta = decode_delta(batch(sent_ms=sent_ms, uptime_ms=last, seq=last, after=last))
        assert (delta.sent_ms, delta.uptime_ms, delta.seq, delta.after) == (sent_ms, last, last, last)


async def test_what_is_lost_is_asked_for_again_and_not_without_a_pause() -> None:
    net, node = await meets(says(batch(Renewed(number=77, remaining_ms=1))))
    assert 1 <= len([each for each in net.asked if each[0] == ADDRESS]) <= 25
    assert node.notes.outcomes.count("bad_answer") >= 1


async def test_a_registration_that_is_not_valid_hides_no_other() -> None:
    raw = Registered(number=2, registration=msgspec.Raw(b'{"nonsense":1}'), lease_ms=LEASE_MS, remaining_ms=LEASE_MS)
    async with nodes(1) as (net, found):
        net.behaviour[ADDRESS] = says(batch(raw, registered("good")))
        net.named.add(ADDRESS)
        await net.advance(1_000)
        assert found[0].listed == ["good"]
        assert found[0].notes.skipped_entries >= 1


async def test_two_that_speak_in_one_answer_are_no_instance() -> None:
    async with nodes(1) as (net, found):
        net.behaviour[ADDRESS] = says(batch(registered("a"), more=True), batch(registered("b"), boot_id="other"))
        net.named.add(ADDRESS)
        await net.advance(1_000)
        assert found[0].sources[ADDRESS].reason is SourceReason.BAD_ANSWER


async def test_a_part_is_not_all_that_is_registered_there() -> None:
    async with nodes(1) as (net, found):
        net.behaviour[ADDRESS] = says(batch(registered("a"), more=True))
        net.named.add(ADDRESS)
        await net.advance(2_000)
        assert found[0].listed == ["a"]
        assert found[0].sources[ADDRESS].state == "unknown"


async def test_a_list_that_ends_too_early_makes_nothing_complete() -> None:
    async def behave(path: str) -> AsyncGenerator[bytes, None]:
        if path == LIST_PATH:
            whole = Snapshot(boot_id="evil", uptime_ms=1, sent_ms=1, more=True, summary=SURE)
            yield msgspec.json.encode(whole) + b"\n"
            return
        yield batch()
        await asyncio.Event().wait()

    await meets(behave, for_ms=2_000)


def endless(make: Callable[[int], bytes]) -> Behaviour:
    async def behave(path: str) -> AsyncGenerator[bytes, None]:
        number = 0
        while True:
            number += 1
            yield make(number)
            if number % 10 == 0:
                # As fast as a network is, and no faster: of this clock no time passes while there is something to do.
                await asyncio.sleep(0)
            if number > 3_000:
                await asyncio.Event().wait()

    return behave


async def test_more_pools_than_may_be_are_left_out_and_the_known_ones_renewed() -> None:
    async with nodes(1, pools_limit=100) as (net, found):
        await found[0].put("mine")
        net.behaviour[ADDRESS] = endless(lambda n: batch(registered(f"p{n}", n), after=n - 1, seq=n, more=True))
        net.named.add(ADDRESS)
        await net.advance(1_000)
        assert len(found[0].listed) == 100
        assert found[0].sources[ADDRESS].reason is SourceReason.BAD_ANSWER
        assert found[0].notes.skipped_entries > 0
        await found[0].put("mine", weight=3)
        assert "mine" in found[0].listed


async def test_more_bytes_than_may_be_are_a_bad_answer() -> None:
    async with nodes(1, bytes_limit=20_000) as (net, found):
        net.behaviour[ADDRESS] = endless(lambda n: batch(registered(f"p{n}", n), after=n - 1, seq=n, more=True))
        net.named.add(ADDRESS)
        await net.advance(1_000)
        assert found[0].sources[ADDRESS].reason is SourceReason.BAD_ANSWER
        assert len(found[0].listed) < 200


async def test_whatever_else_goes_wrong_is_internal_and_ends_nothing() -> None:
    async with nodes(2) as (net, found):
        net.trouble[found[0].address] = ZeroDivisionError("what is that?")
        await found[0].kill()
        await Node(net, found[0].address, "again").start()
        await net.advance(4_000)
        assert found[1].sources[found[0].address].reason is SourceReason.INTERNAL
        assert found[1].running
        net.trouble.clear()
        await net.advance(3_000)
        assert found[1].sources[found[0].address].reason is not SourceReason.INTERNAL


async def test_one_that_falls_silent_in_the_middle_of_a_line_is_given_up() -> None:
    async with nodes(1) as (net, found):
        line = batch(registered("a"))
        net.behaviour[ADDRESS] = says(line, line[:20])
        net.named.add(ADDRESS)
        await net.advance(1_000)
        assert found[0].sources[ADDRESS].state == "fresh"
        await net.advance(4_000)
        assert [path for address, path in net.asked if address == ADDRESS].count("/peer/v1/feed") >= 1
