"""What the store with peers is made of, part by part: lines, whole lists, notes, metrics, credentials."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry

from poolmuster.model.source import SourceReason, SourceState
from poolmuster.programs.metrics.peers import PeerMetrics
from poolmuster.replication.messages import Delta, Registered, Snapshot, SyncSummary
from poolmuster.sources.peers.codec import LINE_LIMIT_BYTES, REGISTERED_WORK, WORK_A_LINE, lines_of
from poolmuster.sources.peers.credentials import PeerCredentials, PeerFiles
from poolmuster.sources.peers.errors import PeerReadError
from poolmuster.sources.peers.instrumentation import GOOD, PeerLog
from poolmuster.sources.peers.transport import LIST_PATH, STREAM_PATH
from tests.support.clock import ManualClock
from tests.support.peer_network import LEASE_MS, Behaviour, CountingNotes, Node, nodes
from tests.support.pki import Authority
from tests.support.registrations import body, registration

ADDRESS = "10.0.0.66:80"
SURE = SyncSummary(warmed_up=True, names_resolved=True)


async def pieces_of(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def test_lines_are_cut_wherever_the_network_cuts_and_empty_ones_are_skipped() -> None:
    whole = b'{"a":1}\n{"b":2}\n\n{"c":3}\n'
    for size in range(1, len(whole)):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert [line async for line in lines_of(pieces_of(*pieces))] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


async def test_the_longest_line_is_taken_and_none_beyond() -> None:
    longest = b"x" * LINE_LIMIT_BYTES
    assert [line async for line in lines_of(pieces_of(longest, b"\n"))] == [longest]
    assert [line async for line in lines_of(pieces_of(longest))] == [], "a line that the end cuts is dropped"
    with pytest.raises(PeerReadError):
        _ = [line async for line in lines_of(pieces_of(longest, b"x"))]


async def test_a_line_holds_few_registrations_or_many_renewals_or_one_that_is_large() -> None:
    async with nodes(1) as (_, found):
        sharing = found[0].store.replication_feed
        for number in range(100):
            await found[0].store.put(registration(f"{number:03}", "r"))
        lines = [msgspec.json.decode(line, type=Delta) async for line in sharing.delta("", 0)]
        assert {len(line.entries) for line in lines} == {WORK_A_LINE // REGISTERED_WORK}
        assert [line.more for line in lines] == [True, True, True, False]
        assert [line.after for line in lines[1:]] == [line.seq for line in lines[:-1]]
        for number in range(100):
            await found[0].store.put(registration(f"{number:03}", "r"))
        [line] = [msgspec.json.decode(line, type=Delta) async for line in sharing.delta("boot1", lines[-1].seq)]
        assert len(line.entries) == 100
        for number in range(3):
            await found[0].store.put(registration(f"large{number}", "r", labels={"l": "x" * 100_000}))
        lines = [msgspec.json.decode(line, type=Delta) async for line in sharing.delta("boot1", line.seq)]
        assert [len(line.entries) for line in lines] == [1, 1, 1]


async def test_what_happens_while_it_is_told_is_told_as_well_and_nothing_is_lost() -> None:
    async with nodes(1) as (_, found):
        sharing = found[0].store.replication_feed
        for number in range(100):
            await found[0].store.put(registration(f"{number:03}", "r"))
        lines = sharing.delta("", 0)
        told = [msgspec.json.decode(await anext(lines), type=Delta)]
        await found[0].store.put(registration("000", "r"))
        await found[0].store.put(registration("099", "r"))
        await found[0].store.put(registration("098", "r", weight=7))
        await found[0].store.put(registration("new", "r"))
        told += [msgspec.json.decode(line, type=Delta) async for line in lines]
        numbers = [entry.number for each in told for entry in each.entries if isinstance(entry, Registered)]
        assert len(numbers) == len(set(numbers)) == 100
        rest = [msgspec.json.decode(line, type=Delta) async for line in sharing.delta("boot1", told[-1].seq)]
        kinds = [type(entry).__name__ for entry in rest[0].entries]
        assert kinds == ["Renewed", "Renewed", "Registered", "Registered"]


async def test_a_place_that_was_never_reached_is_asked_for_from_the_start() -> None:
    async with nodes(1) as (_, found):
        await found[0].put("a")
        [line] = [line async for line in found[0].store.replication_feed.delta("boot1", 999)]
        assert len(msgspec.json.decode(line, type=Delta).entries) == 1


def lists(*wholes: Snapshot) -> Behaviour:
    """A peer that streams nothing but a ping, and gives these as its whole list."""

    async def behave(path: str) -> AsyncGenerator[bytes, None]:
        if path == LIST_PATH:
            for whole in wholes:
                yield msgspec.json.encode(whole) + b"\n"
            return
        while True:
            yield msgspec.json.encode(Delta(boot_id="p", uptime_ms=9, sent_ms=9, after=0, seq=0, summary=SURE)) + b"\n"
            if path != STREAM_PATH:
                return
            await asyncio.Event().wait()

    return behave


def whole(*names: str, boot_id: str = "p", more: bool = False) -> Snapshot:
    entries = tuple(
        Registered(number=0, registration=msgspec.Raw(body(name)), lease_ms=LEASE_MS, remaining_ms=LEASE_MS)
        for name in names
    )
    return Snapshot(boot_id=boot_id, uptime_ms=9, sent_ms=9, more=more, summary=SURE, entries=entries)


async def beside(behaviour: Behaviour, **terms: int) -> Node:
    """An instance that met such a peer at its start."""
    async with nodes(1, **terms) as (net, found):
        net.behaviour[ADDRESS] = behaviour
        net.named.add(ADDRESS)
        await net.advance(2_000)
        return found[0]


async def test_a_whole_list_comes_in_parts() -> None:
    node = await beside(lists(whole("a", more=True), whole("b", more=True), whole("c")))
    assert node.listed == ["a", "b", "c"]


async def test_a_list_of_two_instances_is_none() -> None:
    node = await beside(lists(whole("a", more=True), whole("b", boot_id="q")))
    assert node.listed == ["a"]
    assert "bad_answer" in node.notes.outcomes


async def test_a_list_is_no_longer_than_may_be() -> None:
    node = await beside(lists(*(whole(f"p{n}", more=True) for n in range(100))), bytes_limit=2_000)
    assert len(node.listed) < 20
    assert "bad_answer" in node.notes.outcomes


async def test_what_is_not_valid_in_a_list_hides_nothing_else() -> None:
    bad = msgspec.structs.replace(whole("a").entries[0], registration=msgspec.Raw(b"{}"))
    node = await beside(lists(msgspec.structs.replace(whole("b"), entries=(bad, *whole("b").entries))))
    assert node.listed == ["b"]
    assert node.notes.skipped_entries == 1


async def test_a_list_that_goes_wrong_in_a_way_nobody_thought_of_ends_nothing() -> None:
    async def behave(path: str) -> AsyncGenerator[bytes, None]:
        if path == LIST_PATH:
            raise ZeroDivisionError("what is that?")
        async for line in lists()(path):
            yield line

    node = await beside(behave)
    assert node.sources[ADDRESS].reason is None


def test_the_log_hears_of_each_change_once() -> None:
    counted = CountingNotes()
    told = PeerLog(counted)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            told.read_ended("a", GOOD)
        for _ in range(3):
            told.read_ended("a", SourceReason.TIMEOUT, "silent")
        told.read_ended("a", GOOD)
        for _ in range(2):
            told.removed("a")
        for _ in range(3):
            told.resolved("n", "it is down")
        for _ in range(2):
            told.resolved("n", None)
        told.read_ended("b", SourceReason.INTERNAL)
        told.unexpected("b", ValueError("again"))
    assert [entry["event"] for entry in logs] == [
        "peer reachable",
        "peer unreachable",
        "peer reachable",
        "peer removed",
        "peer name not resolved",
        "peer name resolved",
        "peer unreachable",
    ]
    assert Counter(counted.outcomes) == {"good": 4, "timeout": 3, "internal": 1}


async def test_metrics_count_what_is_noted() -> None:
    registry = CollectorRegistry()
    metrics = PeerMetrics(registry)
    metrics.message("in", "snapshot", 70)
    metrics.message("in", "snapshot", 30)
    metrics.read_ended("refused")
    metrics.resolved(good=False)
    metrics.renewal_came(250)
    metrics.skipped(2)
    metrics.subscribers(3)
    value = registry.get_sample_value
    way = {"direction": "in", "kind": "snapshot"}
    assert (value("poolmuster_peer_messages_total", way), value("poolmuster_peer_bytes_total", way)) == (2, 100)
    assert value("poolmuster_peer_reads_total", {"outcome": "refused"}) == 1
    assert value("poolmuster_peer_reads_total", {"outcome": "timeout"}) == 0
    assert value("poolmuster_peer_resolutions_total", {"outcome": "failed"}) == 1
    assert value("poolmuster_peer_lag_seconds_sum") == 0.25
    assert value("poolmuster_peer_skipped_entries_total") == 2
    assert value("poolmuster_peer_streams") == 3
    async with nodes(3) as (net, found):
        metrics.watch_peers(found[0].store._states)
        net.cut(found[1].address)
        await net.advance(4_000)
        shown = {state: value("poolmuster_peers", {"state": state.value}) for state in SourceState}
        assert shown == {SourceState.FRESH: 1, SourceState.STALE: 1, SourceState.UNKNOWN: 0}


def test_authorities_and_the_pair_are_read_again(tmp_path: Path) -> None:
    clock, authority = ManualClock(), Authority()
    own = authority.issue(["peers.test"]).write(tmp_path, "own")
    files = PeerFiles(tls=True, authorities=authority.write(tmp_path), pair=(own.cert, own.key))
    credentials = PeerCredentials(files, clock)
    first = credentials.context
    assert credentials.shows_certificate

    def look_again() -> None:
        for _ in range(2):
            clock.jump(1_000)
            credentials.refresh()

    look_again()
    assert credentials.context is first
    Authority().write(tmp_path)
    look_again()
    second = credentials.context
    assert second is not first
    Path(own.key).write_text("no key")
    look_again()
    assert credentials.context is second, "what was good last stays in use"
