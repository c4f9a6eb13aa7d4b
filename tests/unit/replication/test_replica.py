"""Registrations of every origin become one list, and one log; rules that the properties do not name."""

import msgspec
import pytest

import poolmuster.registry.relay_records as records_module
from poolmuster.model.errors import RelayDeregistered
from poolmuster.registry.relay_records import RETENTION_MS
from poolmuster.replication import log as log_module
from poolmuster.replication.log import ReplicationLog
from poolmuster.replication.lww import RELAYS_LIMIT, Tombstone, Write
from poolmuster.replication.replica import GRACE_MS, PauseLog, Replica
from tests.support.leases import PoolUpdate
from tests.support.registrations import deregistration, key, registration
from tests.support.replication import delta_entries, snapshot_entries

LEASE_MS = 15_000
T0_MS = 1_000_000


@pytest.fixture
def replica() -> Replica:
    return Replica("me", LEASE_MS)


def write(
    relay_id: str | None = "r", at_ms: int = T0_MS, *, readmitted: bool = False, name: str = "a", weight: int = 1
) -> Write:
    return Write(registration(name, relay_id, weight=weight), LEASE_MS, at_ms, "peer", readmitted)


def tombstone(relay_id: str | None, at_ms: int, ended_ms: int) -> Tombstone:
    return Tombstone(deregistration("a", relay_id), at_ms, ended_ms, at_ms + LEASE_MS + GRACE_MS)


def sent(update: PoolUpdate | None) -> tuple[list[tuple[str | None, int]], list[str | None]]:
    assert update is not None
    renewed = [(renewal.relay_id, renewal.remaining_ms) for renewal in update.renewals]
    return renewed, [each.relay_id for each in update.deregistrations]


def test_the_latest_write_wins_whatever_its_origin(replica: Replica) -> None:
    replica.put(registration("a", "r1"), T0_MS)
    assert sent(replica.apply_remote([write("r2", T0_MS - 1)], T0_MS)) == ([], [])
    assert sent(replica.apply_remote([write("r2", T0_MS + 1_000)], T0_MS + 2_000)) == (
        [("r2", LEASE_MS - 1_000)],
        [],
    )


def test_a_tombstone_supersedes_an_earlier_write_that_arrives_later(replica: Replica) -> None:
    assert sent(replica.apply_remote([tombstone("r", T0_MS, T0_MS - 1_000)], T0_MS)) == ([], [])
    assert sent(replica.apply_remote([write("r", T0_MS + 50)], T0_MS + 100)) == ([], [])
    assert sent(replica.apply_remote([write("r", T0_MS + 60, readmitted=True)], T0_MS + 100)) == (
        [("r", LEASE_MS - 40)],
        [],
    )


def test_a_tombstone_of_a_peer_ends_the_pool_and_refuses_its_relay_here_too(replica: Replica) -> None:
    replica.put(registration("a", "r"), T0_MS)
    assert sent(replica.apply_remote([tombstone("r", T0_MS + 1_000, T0_MS)], T0_MS + 1_100)) == ([], ["r"])
    with pytest.raises(RelayDeregistered):
        replica.put(registration("a", "r"), T0_MS + 2_000)
    assert replica.log.write_of(key()) is None
    replica.put(registration("a", "r2"), T0_MS + 2_000)
    replica.put(registration("a", "r"), T0_MS + 2_000)
    [again] = delta_entries(replica.log, 0, T0_MS + 2_000)
    assert getattr(again, "readmitted", False)


def test_a_tombstone_supersedes_by_the_times_only_what_certainly_came_before(replica: Replica) -> None:
    now_ms = T0_MS + 1_000
    uncertain = msgspec.structs.replace(write("r2", T0_MS - 2_000), uncertainty_ms=3_000)
    replica.apply_remote([tombstone("r1", T0_MS + 100, T0_MS)], now_ms)
    assert sent(replica.apply_remote([uncertain], now_ms)) == ([("r2", LEASE_MS - 3_000)], [])
    *_, passed_on = snapshot_entries(replica, now_ms)
    assert getattr(passed_on, "uncertainty_ms", 0) == 3_000
    assert sent(replica.apply_remote([tombstone("r3", now_ms, now_ms - 1)], now_ms)) == ([], [])
    assert sent(replica.apply_remote([tombstone("r3", now_ms, now_ms)], now_ms)) == ([], ["r3"])


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_copies_of_a_write_the_later_renewal_and_the_greater_uncertainty_count(
    replica: Replica, order: int
) -> None:
    slow = msgspec.structs.replace(write("r2", T0_MS - 2_000), uncertainty_ms=2_500)
    fast = msgspec.structs.replace(write("r2", T0_MS - 100), uncertainty_ms=50)
    for copy in [slow, fast][::order]:
        replica.apply_remote([copy], T0_MS + 1_000)
    [passed_on] = snapshot_entries(replica, T0_MS + 1_000)
    assert getattr(passed_on, "remaining_ms", 0) == LEASE_MS - 1_100
    assert getattr(passed_on, "uncertainty_ms", 0) == 600


def test_l5_a_write_of_within_a_pause_has_its_whole_lease_here_and_only_here(replica: Replica) -> None:
    replica.paused(T0_MS, 20_000)
    assert sent(replica.apply_remote([write("r", T0_MS - 13_000)], T0_MS)) == ([("r", LEASE_MS)], [])
    [passed_on] = snapshot_entries(replica, T0_MS)
    assert getattr(passed_on, "remaining_ms", 0) == LEASE_MS - 13_000


def test_a_pool_that_is_over_is_a_record_for_an_hour(replica: Replica) -> None:
    replica.put(registration("a", "r"), T0_MS)
    replica.apply_remote([tombstone("x", T0_MS, T0_MS - 1)], T0_MS)
    replica.apply_remote([Tombstone(deregistration("b", "x"), T0_MS, T0_MS, T0_MS + 1_000)], T0_MS)
    replica.evict(T0_MS + LEASE_MS + GRACE_MS)
    assert len(replica) == 1
    assert replica.deregister(deregistration("a", "other"), T0_MS + 20_000) is None
    replica.put(registration("a", "r"), T0_MS + 20_000)
    replica.evict(T0_MS + 60_000)
    assert replica.deregister(deregistration("a", "r"), T0_MS + 60_000) is None
    with pytest.raises(RelayDeregistered):
        replica.put(registration("a", "r"), T0_MS + 60_000)
    replica.evict(T0_MS + 60_000 + LEASE_MS + RETENTION_MS - 1)
    assert len(replica) == 1
    replica.evict(T0_MS + 60_000 + LEASE_MS + RETENTION_MS)
    assert len(replica) == 0


def test_records_are_bounded(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "RECORDS_LIMIT", 3)
    for n in range(9):
        replica.put(registration(f"p{n}", "r"), T0_MS)
    replica.evict(T0_MS + 60_000)
    assert len(replica) == 3


def test_a_pool_that_lives_on_because_of_a_pause_is_not_evicted(replica: Replica) -> None:
    replica.put(registration("a", "r"), T0_MS)
    replica.paused(T0_MS + 60_000, 60_000)
    replica.evict(T0_MS + 60_000)
    assert replica.deregister(deregistration("a", "r"), T0_MS + 60_000) is not None


def test_a_deregistration_of_an_unknown_pool_does_nothing(replica: Replica) -> None:
    assert replica.deregister(deregistration("a"), T0_MS) is None
    assert replica.log.seq == 0


def test_the_log_evicts_what_is_over(replica: Replica) -> None:
    replica.put(registration("a", "r"), T0_MS)
    replica.put(registration("b", "r"), T0_MS)
    replica.deregister(deregistration("b", "r"), T0_MS)
    assert len(replica.log) == 2
    assert len(delta_entries(replica.log, 0, T0_MS)) == 2
    assert delta_entries(replica.log, 0, T0_MS + LEASE_MS + GRACE_MS) == ()
    replica.log.evict(T0_MS + LEASE_MS - 1)
    assert len(replica.log) == 2
    replica.log.evict(T0_MS + LEASE_MS + GRACE_MS)
    assert len(replica.log) == 0


def test_the_relays_of_one_register_are_bounded(replica: Replica) -> None:
    relays = [f"r{n}" for n in range(2 * RELAYS_LIMIT)]
    replica.apply_remote([write(relay, T0_MS + n) for n, relay in enumerate(relays)], T0_MS + 100)
    replica.apply_remote([tombstone(relay, T0_MS + n, T0_MS + n) for n, relay in enumerate(relays)], T0_MS + 100)
    kept = snapshot_entries(replica, T0_MS + 100)
    assert len(kept) == RELAYS_LIMIT


def test_an_entry_with_a_long_lease_does_not_keep_later_ones_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "EVICT_BATCH", 1)
    log = ReplicationLog()
    for name, lease_ms in (("long", 1_000_000), ("short", 1_000), ("shorter", 500)):
        log.record_write(Write(registration(name, "r"), lease_ms, 0, "me"))
    for _ in range(4):
        log.evict(2_000)
    assert len(log) == 1
    assert log.write_of(registration("long").key) is not None


def test_l5_lease_time_stands_still_in_a_pause() -> None:
    pauses = PauseLog()
    pauses.record(20_000, 5_000)
    pauses.record(25_000, 0)
    assert pauses.elapsed_ms(10_000, 30_000) == 15_000
    assert pauses.elapsed_ms(17_000, 18_000) == 0
    assert pauses.elapsed_ms(17_000, 21_000) == 1_000
    assert pauses.elapsed_ms(20_000, 21_000) == 1_000
