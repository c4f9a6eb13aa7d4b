"""Any order, loss, delay and repetition of messages ends in the same list."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolmuster.model.change import ChangeKind
from poolmuster.model.errors import RelayDeregistered
from poolmuster.registry.leases import LeaseTable
from poolmuster.replication.decoder import DeltaDecoder, OutOfSync, decode_snapshot
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.messages import Delta, Snapshot, SyncSummary
from poolmuster.replication.replica import GRACE_MS, Replica
from tests.support.leases import PoolLeases, PoolUpdate, apply
from tests.support.registrations import deregistration, registration
from tests.support.replication import delta_entries, snapshot_entries
from tests.support.variables import variable

EXAMPLES = int(variable("EXAMPLES", "120"))
LEASE_MS = 15_000
LATE_MS = 20_000
"""The longest delay of a message."""

names = st.sampled_from("ab")
relays = st.sampled_from(["r1", "r2", "r3", None])
times = st.integers(0, 30_000)


@st.composite
def writes(draw: st.DrawFn) -> Write:
    facts = registration(draw(names), draw(relays), weight=draw(st.integers(0, 2)))
    origin, uncertainty_ms = draw(st.sampled_from(["x", "y"])), draw(st.sampled_from([0, 40, 3_000]))
    return Write(facts, LEASE_MS, draw(times), origin, draw(st.booleans()), uncertainty_ms)


@st.composite
def tombstones(draw: st.DrawFn) -> Tombstone:
    relay_id, at_ms = draw(relays), draw(times)
    ended_ms = at_ms if relay_id is None else at_ms - draw(st.integers(0, 10_000))
    return Tombstone(deregistration(draw(names), relay_id), at_ms, ended_ms, at_ms + LEASE_MS + GRACE_MS)


Item = Write | Tombstone


def happened_ms(item: Item) -> int:
    return item.deregistered_ms if isinstance(item, Tombstone) else item.renewed_ms


class Reader:
    """An instance that receives items, and its lease table."""

    def __init__(self) -> None:
        self.replica = Replica("me", LEASE_MS)
        self.leases: PoolLeases = LeaseTable()
        self.kinds: list[ChangeKind] = []

    def apply(self, update: PoolUpdate) -> None:
        self.kinds += [event.kind for event in apply(self.leases, update)]

    def receive(self, items: list[Item], now_ms: int) -> None:
        self.apply(self.replica.apply_remote(items, now_ms))
        self.leases.expire(now_ms, 1_000)
        self.replica.evict(now_ms)

    def listed(self, now_ms: int) -> dict[str, tuple[bytes, str | None, int]]:
        """Each pool with its relay and its end."""
        self.leases.expire(now_ms, 1_000)
        return {
            key.dgd_name: (lease.record.body, lease.relay_id, lease.ends_ms)
            for key, lease in self.leases._leases.items()
        }


def receive_all(items: list[Item], delays_ms: list[int], repeated: list[bool], until_ms: int) -> Reader:
    """All items arrive by ``until_ms``, each with its delay, some of them twice."""
    reader = Reader()
    arrivals: list[tuple[int, int, Item]] = []
    for order, (item, delay_ms, again) in enumerate(zip(items, delays_ms, repeated, strict=True)):
        arrivals.append((happened_ms(item) + delay_ms, order, item))
        if again:
            arrivals.append((min(until_ms, happened_ms(item) + 3 * delay_ms), order, item))
    for at_ms, _, item in sorted(arrivals, key=lambda arrival: arrival[:2]):
        reader.receive([item], at_ms)
    return reader


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None)
@given(items=st.lists(st.one_of(writes(), writes(), tombstones()), max_size=8), data=st.data())
def test_any_order_delay_and_repetition_ends_in_the_same_list(items: list[Item], data: st.DataObject) -> None:
    until_ms = max(map(happened_ms, items), default=0) + LATE_MS
    lists = []
    for _ in range(2):
        size = len(items)
        shuffled = data.draw(st.permutations(items))
        delays_ms = data.draw(st.lists(st.integers(0, LATE_MS), min_size=size, max_size=size))
        repeated = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
        lists.append(receive_all(shuffled, delays_ms, repeated, until_ms).listed(until_ms))
    assert lists[0] == lists[1]


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None)
@given(items=st.lists(st.one_of(writes(), writes(), tombstones()), max_size=8), data=st.data())
def test_the_list_does_not_depend_on_how_items_are_cut_into_messages(items: list[Item], data: st.DataObject) -> None:
    now_ms = max(map(happened_ms, items), default=0)
    one, many = Reader(), Reader()
    one.receive(data.draw(st.permutations(items)), now_ms)
    for item in data.draw(st.permutations(items)):
        many.receive([item], now_ms)
    assert one.listed(now_ms) == many.listed(now_ms)


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None)
@given(items=st.lists(st.one_of(writes(), tombstones()), max_size=8), again=st.lists(st.integers(0, 7), max_size=8))
def test_a_repeated_item_is_no_event(items: list[Item], again: list[int]) -> None:
    reader = Reader()
    now_ms = max(map(happened_ms, items), default=0)
    reader.receive(items, now_ms)
    reader.kinds.clear()
    for n in again:
        reader.receive([items[n % len(items)]] if items else [], now_ms)
    assert reader.kinds == []


operations = st.one_of(
    st.tuples(st.just("put"), names, relays, st.integers(0, 2)),
    st.tuples(st.just("deregister"), names, relays, st.just(0)),
    st.tuples(st.just("send"), st.just("a"), st.none(), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.just("a"), st.none(), st.sampled_from([10, 4_000, 16_000])),
)


def delta_of(sender: Replica, after: int, now_ms: int) -> Delta:
    delta = Delta(
        boot_id="sender",
        uptime_ms=now_ms,
        sent_ms=now_ms,
        after=after,
        seq=sender.log.seq,
        summary=SyncSummary(warmed_up=True, names_resolved=True),
        entries=delta_entries(sender.log, after, now_ms),
    )
    return msgspec.json.decode(msgspec.json.encode(delta), type=Delta)


def read(reader: Reader, decoder: DeltaDecoder, delta: Delta, now_ms: int) -> None:
    try:
        reader.receive(decoder.decode(delta, now_ms), now_ms)
    except OutOfSync as error:
        decoder.seq = error.seq


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None)
@given(operations=st.lists(operations, max_size=30))
def test_a_peer_that_loses_answers_and_gets_others_twice_lists_what_was_registered(operations: list[Any]) -> None:
    """Waits are whole ticks, so that the two lease tables, which expire at different times, can be compared."""
    sender, reader, decoder = Reader(), Reader(), DeltaDecoder("sender")
    sender.replica = Replica("sender", LEASE_MS)
    now_ms = 0
    for what, name, relay_id, number in operations:
        if what == "put":
            try:
                sender.apply(sender.replica.put(registration(name, relay_id, weight=number), now_ms))
            except RelayDeregistered:
                continue
        elif what == "deregister":
            update = sender.replica.deregister(deregistration(name, relay_id), now_ms)
            if update is not None:
                sender.apply(update)
        elif what == "wait":
            now_ms += number
            sender.leases.expire(now_ms, 1_000)
            sender.replica.evict(now_ms)
        elif number:
            delta = delta_of(sender.replica, decoder.seq, now_ms)
            for _ in range(number):
                read(reader, decoder, delta, now_ms)
    for _ in range(2):
        read(reader, decoder, delta_of(sender.replica, decoder.seq, now_ms), now_ms)
    listed = sender.listed(now_ms)
    assert {name: facts[:2] for name, facts in reader.listed(now_ms).items()} == {
        name: facts[:2] for name, facts in listed.items()
    }
    newcomer = Reader()
    snapshot = Snapshot(
        boot_id="sender",
        uptime_ms=0,
        sent_ms=now_ms,
        summary=SyncSummary(warmed_up=True, names_resolved=True),
        entries=snapshot_entries(sender.replica, now_ms),
    )
    snapshot = msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot)
    newcomer.receive(decode_snapshot(snapshot.entries, snapshot.boot_id, now_ms)[0], now_ms)
    assert newcomer.listed(now_ms).keys() == listed.keys()
