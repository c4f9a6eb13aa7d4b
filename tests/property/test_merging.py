"""Any order, loss, delay and repetition of what peers say ends in the same list."""

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
from tests.support.variables import variable

EXAMPLES = int(variable("EXAMPLES", "120"))
LEASE_MS = 15_000
LATE_MS = 20_000
"""The longest that a message is under way."""

names = st.sampled_from("ab")
relays = st.sampled_from(["r1", "r2", "r3", None])
moments = st.integers(0, 30_000)


@st.composite
def register(draw: st.DrawFn) -> Write:
    facts = registration(draw(names), draw(relays), weight=draw(st.integers(0, 2)))
    return Write(facts, LEASE_MS, draw(moments), draw(st.sampled_from(["x", "y"])), draw(st.booleans()))


@st.composite
def tombstones(draw: st.DrawFn) -> Tombstone:
    relay_id, left_ms = draw(relays), draw(moments)
    ended_ms = left_ms if relay_id is None else left_ms - draw(st.integers(0, 10_000))
    return Tombstone(deregistration(draw(names), relay_id), left_ms, ended_ms, left_ms + LEASE_MS + GRACE_MS)


Said = Write | Tombstone


def happened_ms(said: Said) -> int:
    return said.left_ms if isinstance(said, Tombstone) else said.renewed_ms


class Reader:
    """An instance that hears, and its roster."""

    def __init__(self) -> None:
        self.replica = Replica("me", LEASE_MS)
        self.leases: PoolLeases = LeaseTable()
        self.kinds: list[ChangeKind] = []

    def observe(self, reading: PoolUpdate) -> None:
        self.kinds += [step.kind for step in apply(self.leases, reading)]

    def hear(self, said: list[Said], now_ms: int) -> None:
        self.observe(self.replica.apply_remote(said, now_ms))
        self.leases.expire(now_ms, 1_000)
        self.replica.evict(now_ms)

    def listed(self, now_ms: int) -> dict[str, tuple[bytes, str | None, int]]:
        """Each pool with its relay and its end."""
        self.leases.expire(now_ms, 1_000)
        return {
            key.dgd_name: (entry.record.body, entry.relay_id, entry.ends_ms)
            for key, entry in self.leases._leases.items()
        }


def hear_all(said: list[Said], delays_ms: list[int], repeated: list[bool], until_ms: int) -> Reader:
    """Everything is heard by ``until_ms``, each with its delay, some of it twice."""
    reader = Reader()
    heard: list[tuple[int, int, Said]] = []
    for order, (each, delay_ms, again) in enumerate(zip(said, delays_ms, repeated, strict=True)):
        heard.append((happened_ms(each) + delay_ms, order, each))
        if again:
            heard.append((min(until_ms, happened_ms(each) + 3 * delay_ms), order, each))
    for at_ms, _, each in sorted(heard, key=lambda item: item[:2]):
        reader.hear([each], at_ms)
    return reader


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None)
@given(said=st.lists(st.one_of(register(), register(), tombstones()), max_size=8), data=st.data())
def test_any_order_delay_and_repetition_ends_in_the_same_list(said: list[Said], data: st.DataObject) -> None:
    until_ms = max(map(happened_ms, said), default=0) + LATE_MS
    lists = []
    for _ in range(2):
        size = len(said)
        shuffled = data.draw(st.permutations(said))
        delays_ms = data.draw(st.lists(st.integers(0, LATE_MS), min_size=size, max_size=size))
        repeated = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
        lists.append(hear_all(shuffled, delays_ms, repeated, until_ms).listed(until_ms))
    assert lists[0] == lists[1]


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None)
@given(said=st.lists(st.one_of(register(), register(), tombstones()), max_size=8), data=st.data())
def test_however_it_is_cut_into_messages_the_list_is_the_same(said: list[Said], data: st.DataObject) -> None:
    now_ms = max(map(happened_ms, said), default=0)
    one, many = Reader(), Reader()
    one.hear(data.draw(st.permutations(said)), now_ms)
    for each in data.draw(st.permutations(said)):
        many.hear([each], now_ms)
    assert one.listed(now_ms) == many.listed(now_ms)


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None)
@given(said=st.lists(st.one_of(register(), tombstones()), max_size=8), again=st.lists(st.integers(0, 7), max_size=8))
def test_what_is_repeated_is_no_event(said: list[Said], again: list[int]) -> None:
    reader = Reader()
    now_ms = max(map(happened_ms, said), default=0)
    reader.hear(said, now_ms)
    reader.kinds.clear()
    for n in again:
        reader.hear([said[n % len(said)]] if said else [], now_ms)
    assert reader.kinds == []


operations = st.one_of(
    st.tuples(st.just("put"), names, relays, st.integers(0, 2)),
    st.tuples(st.just("leave"), names, relays, st.just(0)),
    st.tuples(st.just("tell"), st.just("a"), st.none(), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.just("a"), st.none(), st.sampled_from([10, 4_000, 16_000])),
)


def told(teller: Replica, after: int, now_ms: int) -> Delta:
    batch = Delta(
        boot_id="teller",
        uptime_ms=now_ms,
        sent_ms=now_ms,
        after=after,
        seq=teller.log.seq,
        summary=SyncSummary(warmed_up=True, names_resolved=True),
        entries=teller.log.since(after, now_ms),
    )
    return msgspec.json.decode(msgspec.json.encode(batch), type=Delta)


def read(reader: Reader, feed: DeltaDecoder, batch: Delta, now_ms: int) -> None:
    try:
        reader.hear(feed.decode(batch, now_ms), now_ms)
    except OutOfSync as misread:
        feed.seq = misread.seq


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None)
@given(operations=st.lists(operations, max_size=30))
def test_a_peer_that_loses_answers_and_gets_others_twice_lists_what_was_registered(operations: list[Any]) -> None:
    """Wait ends in a whole tick, so that the two rosters, which look at different moments, can be compared."""
    teller, reader, feed = Reader(), Reader(), DeltaDecoder("teller")
    teller.replica = Replica("teller", LEASE_MS)
    now_ms = 0
    for what, name, relay_id, number in operations:
        if what == "put":
            try:
                teller.observe(teller.replica.put(registration(name, relay_id, weight=number), now_ms))
            except RelayDeregistered:
                continue
        elif what == "leave":
            reading = teller.replica.deregister(deregistration(name, relay_id), now_ms)
            if reading is not None:
                teller.observe(reading)
        elif what == "wait":
            now_ms += number
            teller.leases.expire(now_ms, 1_000)
            teller.replica.evict(now_ms)
        elif number:
            batch = told(teller.replica, feed.seq, now_ms)
            for _ in range(number):
                read(reader, feed, batch, now_ms)
    for _ in range(2):
        read(reader, feed, told(teller.replica, feed.seq, now_ms), now_ms)
    listed = teller.listed(now_ms)
    assert {name: facts[:2] for name, facts in reader.listed(now_ms).items()} == {
        name: facts[:2] for name, facts in listed.items()
    }
    newcomer = Reader()
    whole = Snapshot(
        boot_id="teller",
        uptime_ms=0,
        sent_ms=now_ms,
        summary=SyncSummary(warmed_up=True, names_resolved=True),
        entries=tuple(teller.replica.snapshot(now_ms)),
    )
    whole = msgspec.json.decode(msgspec.json.encode(whole), type=Snapshot)
    newcomer.hear(decode_snapshot(whole.entries, whole.boot_id, now_ms)[0], now_ms)
    assert newcomer.listed(now_ms).keys() == listed.keys()
