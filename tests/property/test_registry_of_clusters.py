"""The registry with records of another type: clusters and what they export, as a clusterset registry holds them.

The same lease and list rules hold: L2 to L5, L9, and the bytes of a list depend on its records alone.
"""

import json
from hashlib import shake_256

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.change import Change, ChangeKind, Deregistration, RemovalCause
from poolmuster.model.registration import DIGEST_BITS
from poolmuster.registry.change_filter import filter_change
from poolmuster.registry.change_log import ChangeLog
from poolmuster.registry.leases import LeaseEvent, LeaseTable
from poolmuster.registry.listing import Join, UnlistedReason
from poolmuster.registry.record_list import RecordList
from poolmuster.registry.table_scan import ScanDiff, TableItem
from poolmuster.registry.updates import Placements, Renewal

LEASE_MS = 15_000
WALL_MS = 1_800_000_000_000


class Cluster(msgspec.Struct, frozen=True):
    """A cluster of a clusterset and the Services that it exports (`poolmuster.registry.updates.Record`)."""

    name: str
    exports: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.name

    @property
    def body(self) -> bytes:
        return json.dumps({"cluster": self.name, "exports": self.exports}).encode()

    @property
    def digest(self) -> int:
        return int.from_bytes(shake_256(self.body).digest(DIGEST_BITS // 8))

    @property
    def size_bytes(self) -> int:
        return len(self.body)


class ExportSelector(msgspec.Struct, frozen=True):
    """Clusters that export ``service``."""

    service: str
    selects_all: bool = False

    def matches(self, record: Cluster, /) -> bool:
        return self.service in record.exports


NAMES = st.sampled_from(["east", "west", "north"])
EXPORTS = st.lists(st.sampled_from(["api", "db", "web"]), unique=True, max_size=3).map(
    lambda names: tuple(sorted(names))
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("renew"), NAMES, EXPORTS, st.integers(1, LEASE_MS)),
        st.tuples(st.just("deregister"), NAMES, st.just(()), st.just(0)),
        st.tuples(st.just("credit"), st.just(""), st.just(()), st.integers(0, 5_000)),
        st.tuples(st.just("pass"), st.just(""), st.just(()), st.integers(0, LEASE_MS)),
    ),
    max_size=60,
)


class Registry:
    """A lease table with the list and the change log that follow it."""

    def __init__(self) -> None:
        self.leases: LeaseTable[str, Cluster] = LeaseTable()
        self.clusters: RecordList[Cluster] = RecordList()
        self.change_log: ChangeLog[Cluster] = ChangeLog(1_000, 1 << 20, 0)

    def record(self, event: LeaseEvent[Cluster] | None) -> None:
        if event is None:
            return
        if event.after is not None:
            self.clusters.put(event.after)
        elif event.before is not None:
            self.clusters.remove(event.before.key)
        number = self.change_log.number + 1
        self.change_log.append(
            Change(number=number, kind=event.kind, at_ms=0, monotonic_ms=number, before=event.before, after=event.after)
        )


@given(STEPS)
def test_leases_and_list_follow_a_naive_model(steps: list[tuple[str, str, tuple[str, ...], int]]) -> None:
    registry, now_ms = Registry(), 0
    naive: dict[str, tuple[Cluster, int]] = {}
    for step, name, exports, span_ms in steps:
        match step:
            case "renew":
                cluster = Cluster(name, exports)
                before = naive.get(name)
                event = registry.leases.renew(Renewal(cluster, "controller", LEASE_MS, span_ms), now_ms)
                naive[name] = (cluster, now_ms + span_ms)
                same = before is not None and before[0] == cluster
                kind = ChangeKind.ADDED if before is None else ChangeKind.CHANGED
                assert (event and event.kind) == (None if same else kind), "L3: equal facts are no event"
                registry.record(event)
            case "deregister":
                event = registry.leases.deregister(Deregistration(key=name))
                assert (event is not None) == (naive.pop(name, None) is not None)
                registry.record(event)
            case "credit":
                registry.leases.credit(span_ms)
                now_ms += span_ms
                naive = {each: (cluster, ends_ms + span_ms) for each, (cluster, ends_ms) in naive.items()}
            case _:
                now_ms += span_ms
        for event in registry.leases.expire(now_ms, 100):
            assert event.cause is RemovalCause.EXPIRED
            registry.record(event)
        naive = {each: (cluster, ends_ms) for each, (cluster, ends_ms) in naive.items() if ends_ms > now_ms}
        assert list(registry.clusters) == [naive[each][0] for each in sorted(naive)]
        assert registry.leases.size_bytes == sum(cluster.size_bytes for cluster, _ in naive.values())
        fresh = RecordList([naive[each][0] for each in sorted(naive)])
        assert registry.clusters.digest == fresh.digest
        assert b"".join(page.encoded() for page in registry.clusters.pages()) == b"".join(
            page.encoded() for page in fresh.pages()
        )


@given(STEPS, st.sampled_from(["api", "db"]))
def test_a_filtered_watcher_reconstructs_the_filtered_list(
    steps: list[tuple[str, str, tuple[str, ...], int]], service: str
) -> None:
    registry, now_ms, selector = Registry(), 0, ExportSelector(service)
    for step, name, exports, span_ms in steps:
        if step == "renew":
            registry.record(registry.leases.renew(Renewal(Cluster(name, exports), None, LEASE_MS, span_ms), now_ms))
        elif step == "deregister":
            registry.record(registry.leases.deregister(Deregistration(key=name)))
        elif step == "pass":
            now_ms += span_ms
        for event in registry.leases.expire(now_ms, 100):
            registry.record(event)
    watched: dict[str, Cluster] = {}
    for change in registry.change_log.since(0) or []:
        seen = filter_change(change, selector)
        if seen is None:
            continue
        if seen.after is not None:
            watched[seen.after.key] = seen.after
        elif seen.before is not None:
            del watched[seen.before.key]
    assert [watched[each] for each in sorted(watched)] == [each for each in registry.clusters if selector.matches(each)]


def test_l9_two_controllers_of_one_cluster_conflict() -> None:
    leases: LeaseTable[str, Cluster] = LeaseTable()
    for at_ms, controller in enumerate(("A", "B", "A")):
        leases.renew(Renewal(Cluster("east", ("api",)), controller, LEASE_MS, LEASE_MS), at_ms)
    span = leases.conflict("east", 3)
    assert span is not None
    assert span.relay_ids == ("A", "B")


def test_a_table_of_clusters_is_read_by_the_same_rules() -> None:
    """L4: another stored end is a renewal; the same one is not. L5: what exceeds three seconds is credited."""
    diff: ScanDiff[str, Cluster] = ScanDiff(LEASE_MS, None)
    leases: LeaseTable[str, Cluster] = LeaseTable()

    def scan(at_ms: int, ends_ms: int, *, every: bool = True) -> list[str]:
        item = TableItem(key="east", record=Cluster("east", ("api",)), relay_id=None, ends_ms=WALL_MS + ends_ms)
        update = diff.apply_scan([item] if every else [], at_ms, WALL_MS + at_ms)
        leases.credit(update.credit_ms)
        for renewal in update.renewals:
            leases.renew(renewal, update.started_ms)
        for deregistration in update.deregistrations:
            leases.deregister(deregistration)
        leases.expire(update.started_ms, 100)
        return [] if leases.get("east") is None else ["east"]

    assert scan(0, LEASE_MS) == ["east"]
    assert scan(1_000, 5) == ["east"]
    assert scan(1_000 + LEASE_MS - 1, 5) == ["east"]
    credited_ms = LEASE_MS - 1 - 3_000
    assert scan(1_000 + LEASE_MS + credited_ms - 1, 5) == ["east"]
    assert scan(1_000 + 2 * LEASE_MS + 60_000, -WALL_MS) == [], "an end of 0 is a deregistration"


@given(st.frozensets(NAMES), st.frozensets(NAMES), st.frozensets(NAMES), st.frozensets(NAMES))
def test_the_join_lists_what_is_live_and_placed(
    live: frozenset[str], whole: frozenset[str], added: frozenset[str], removed: frozenset[str]
) -> None:
    join: Join[str, Cluster] = Join(has_topology=True)
    records = {name: Cluster(name, ()) for name in live}
    assert [join.listed(record) for record in records.values()] == [None] * len(live), "nothing is placed yet"
    assert join.place(Placements(added=whole, whole=True)) == whole
    placed = (whole - removed) | added
    assert join.place(Placements(added=added, removed=removed)) == whole ^ placed
    for name in ("east", "west", "north"):
        record = records.get(name)
        assert join.listed(record) == (record if name in placed else None)
        reason = UnlistedReason.NOT_IN_TOPOLOGY if name in live else UnlistedReason.NO_REGISTRATION
        expected = reason if (name in live) != (name in placed) else None
        assert join.unlisted_reason(name, record) == expected


def test_without_a_topology_everything_is_placed() -> None:
    join: Join[str, Cluster] = Join()
    record = Cluster("east", ())
    assert join.listed(record) is record
    assert join.listed(None) is None
    assert join.unlisted_reason("east", None) is None
