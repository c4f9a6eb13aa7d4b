"""Applying messages: nothing is lost where a read is cancelled, and nothing counts as known before it is applied."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from poolmuster.model.source import SourceReason, SourceState
from poolmuster.platform.lease_clock import TickingLeaseClock
from poolmuster.replication.decoder import OutOfSync
from poolmuster.replication.messages import Delta, Registered, Renewed, Snapshot, SyncSummary
from poolmuster.sources.peers.errors import PeerReadError
from poolmuster.sources.peers.importer import Importer
from poolmuster.sources.peers.instrumentation import PeerInstrumentation
from poolmuster.sources.peers.node import Node, PeerSettings, Received
from tests.support.catalog import POLICY
from tests.support.clock import ManualClock
from tests.support.peer_network import LEASE_MS, NAME
from tests.support.registrations import body, registration
from tests.support.slow_sink import SlowSink

ADDRESS = "10.0.0.66:80"
TRUSTED = SyncSummary(warmed_up=True, names_resolved=True)
TURNS = range(12)


class World:
    """A node and the importer of one peer, on a sink that can be held up."""

    def __init__(self, **settings: int) -> None:
        self.clock = ManualClock()
        self.sink = SlowSink()
        lease_clock = TickingLeaseClock(self.clock.monotonic_ms)
        peer_settings = PeerSettings(names=(NAME,), policy=POLICY, **settings)
        self.node = Node(lease_clock, "here", peer_settings, PeerInstrumentation())
        self.node.sink = self.sink
        self.node.record_resolved(str(NAME), frozenset({ADDRESS}), self.clock.monotonic_ms())
        self.importer = Importer(ADDRESS, self.node)

    def received(self, message: Delta | Snapshot) -> Received:
        return Received(message, self.clock.monotonic_ms())

    async def apply(self, message: Delta | Snapshot) -> None:
        received = self.received(message)
        await self.importer.apply(received, received)

    async def cancel_after(self, turns: int, message: Delta | Snapshot) -> None:
        """Cancel the application of ``message`` after so many turns of the event loop."""
        task = asyncio.create_task(self.apply(message))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def applied(self) -> list[str]:
        """The pools that reached the sink."""
        return [renewal.record.key.dgd_name for update in self.sink.applied for renewal in update.renewals]

    def is_read(self) -> bool:
        """Whether all that is registered at the peer counts as known."""
        found = [
            status for status in self.node.membership.statuses(self.clock.monotonic_ms()) if status.name == ADDRESS
        ]
        return [status.state for status in found] == [SourceState.FRESH]

    def is_warm(self) -> bool:
        return self.node.membership.is_warm(self.clock.monotonic_ms())


def registered(name: str, number: int) -> Registered:
    raw = msgspec.Raw(body(name))
    return Registered(number=number, registration=raw, relay_id="r", lease_ms=LEASE_MS, remaining_ms=LEASE_MS)


def delta(*names: str, after: int = 0, more: bool = False) -> Delta:
    entries = tuple(registered(name, after + at) for at, name in enumerate(names, 1))
    seq = after + len(names)
    return Delta(boot_id="p", uptime_ms=9, sent_ms=9, after=after, seq=seq, more=more, summary=TRUSTED, entries=entries)


def snapshot(*names: str, more: bool = False) -> Snapshot:
    entries = tuple(registered(name, 0) for name in names)
    return Snapshot(boot_id="p", uptime_ms=9, sent_ms=9, more=more, summary=TRUSTED, entries=entries)


@pytest.mark.parametrize("turns", TURNS)
async def test_wherever_a_read_is_cancelled_its_pools_are_applied_or_read_again(turns: int) -> None:
    world = World()
    world.sink.hold()
    await world.cancel_after(turns, delta("a", "b"))
    assert not world.is_read()
    position = world.importer.position
    world.sink.release()
    await world.clock.settle()
    assert (position, world.applied) in [(("", 0), []), (("p", 2), ["a", "b"])]
    assert not world.is_read(), "the read itself did not end"
    await world.apply(delta(after=position[1]) if position[1] else delta("a", "b"))
    assert world.applied == ["a", "b"]
    assert world.is_read()


async def test_a_read_counts_only_once_the_updates_of_cancelled_reads_are_applied() -> None:
    world = World()
    world.sink.hold()
    await world.cancel_after(3, delta("a"))
    ping = asyncio.create_task(world.apply(delta(after=1)))
    await world.clock.settle()
    assert not ping.done()
    assert not world.is_read()
    world.sink.release()
    await ping
    assert (world.applied, world.is_read()) == (["a"], True)


async def test_a_part_does_not_count_as_the_whole() -> None:
    world = World()
    first = world.received(delta("a", more=True))
    await world.importer.apply(first, first)
    assert not world.is_read()
    world.clock.jump(500)
    await world.importer.apply(world.received(delta("b", after=1)), first)
    assert world.is_read()
    member = world.node.membership.member(ADDRESS)
    assert member is not None
    assert member.answered_ms == first.as_of_ms, "it counts from the first message"


@pytest.mark.parametrize("turns", TURNS)
async def test_a_cancelled_snapshot_makes_nothing_complete(turns: int) -> None:
    world = World()
    await world.apply(delta())
    world.sink.hold()
    await world.cancel_after(turns, snapshot("a"))
    world.sink.release()
    await world.clock.settle()
    assert not world.is_warm()
    assert world.node.needs_snapshot_of("p", world.clock.monotonic_ms())
    await world.apply(snapshot("a"))
    assert world.is_warm()
    assert world.applied[-1:] == ["a"]


async def test_a_snapshot_counts_only_with_its_last_part() -> None:
    world = World()
    first = world.received(snapshot("a", more=True))
    await world.importer.apply(first, first)
    assert not world.is_warm()
    await world.importer.apply(world.received(snapshot("b")), first)
    assert (world.applied, world.is_warm()) == (["a", "b"], True)


@pytest.mark.parametrize("turns", TURNS)
async def test_pools_that_are_left_out_are_read_again_wherever_the_read_is_cancelled(turns: int) -> None:
    world = World(pools_limit=2)
    await world.apply(delta("a"))
    world.sink.hold()
    await world.cancel_after(turns, delta("b", "c", after=1))
    world.sink.release()
    await world.clock.settle()
    world.clock.jump(4_000)
    if world.importer.position == ("p", 1):
        assert turns == 0, "the message was not read yet"
        return
    assert world.importer.position == ("", 0)
    with pytest.raises(OutOfSync):
        await world.apply(delta(after=3))
    assert not world.is_read()
    with pytest.raises(PeerReadError):
        await world.apply(delta("a", "b", "c"))
    assert not world.is_read()
    assert "c" not in world.applied


async def test_of_a_snapshot_that_does_not_fit_nothing_counts_but_what_fits_is_applied() -> None:
    world = World(pools_limit=1)
    with pytest.raises(PeerReadError, match="more pools"):
        await world.apply(snapshot("a", "b"))
    assert (world.applied, world.is_warm()) == (["a"], False)


async def test_after_an_error_of_the_sink_the_peer_is_read_from_its_beginning() -> None:
    world = World()
    world.sink.error = ZeroDivisionError("what is that?")
    with pytest.raises(ZeroDivisionError):
        await world.apply(delta("a"))
    assert world.importer.position == ("", 0)
    assert not world.is_read()


async def test_after_a_message_that_does_not_follow_the_peer_is_read_from_where_its_decoder_says() -> None:
    world = World()
    await world.apply(delta("a"))
    with pytest.raises(OutOfSync):
        await world.apply(delta(after=3))
    assert world.importer.position == ("p", 1), "a message was lost"
    entries = (Renewed(number=77, remaining_ms=1),)
    with pytest.raises(OutOfSync):
        await world.apply(msgspec.structs.replace(delta(after=1), entries=entries))
    assert world.importer.position == ("p", 0), "a number is not known"


async def test_another_boot_is_read_from_its_beginning() -> None:
    world = World()
    await world.apply(delta("a"))
    with pytest.raises(OutOfSync):
        await world.apply(msgspec.structs.replace(delta(after=1), boot_id="q"))
    await world.apply(msgspec.structs.replace(delta("b"), boot_id="q"))
    assert world.importer.position == ("q", 1)


async def test_a_registration_is_applied_and_announced_where_its_request_is_cancelled() -> None:
    world = World()
    announced: list[bool] = []
    world.node.on_change = lambda: announced.append(True)
    world.sink.hold()
    task = asyncio.create_task(world.node.put(registration("a", "r")))
    await world.clock.settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    world.sink.release()
    await world.clock.settle()
    assert (world.applied, announced) == (["a"], [True])


async def test_every_change_of_a_status_is_passed_to_the_sink() -> None:
    world = World()
    node, now_ms = world.node, world.clock.monotonic_ms()
    changes: list[int] = []
    records: tuple[Callable[[], None], ...] = (
        lambda: node.record_refused(ADDRESS),
        lambda: node.record_failed(ADDRESS, SourceReason.TIMEOUT, "It does not answer."),
        lambda: node.record_resolved(str(NAME), frozenset({ADDRESS}), now_ms),
        lambda: node.record_resolver_failed(str(NAME), "It is down."),
    )
    for change in records:
        before = world.sink.status_changes
        change()
        changes.append(world.sink.status_changes - before)
    for message in (delta("a", more=True), delta(after=1), snapshot("a", more=True), snapshot("b")):
        before = world.sink.status_changes
        await world.apply(message)
        changes.append(world.sink.status_changes - before)
    assert changes == [1, 1, 1, 1, 0, 1, 0, 1]
