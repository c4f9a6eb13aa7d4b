"""L4 and L5 as properties: a table, writers with clocks of their own, and a reader that fails now and then."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.change import RemovalCause
from poolmuster.registry.table_scan import EXPECTED_GAP_MS, TableItem
from tests.support.registrations import key, pool
from tests.unit.registry.tables import HEARTBEAT_MS, HOUR_MS, LEASE_MS, SECOND_MS, T0_MS, WALL_MS, Listed, PoolItem

clock_errors = st.integers(-HOUR_MS, HOUR_MS)


def _ends_differ(errors_ms: list[int]) -> bool:
    following = errors_ms[1:] + errors_ms[:1]
    return all(after + HEARTBEAT_MS != before for before, after in zip(errors_ms, following, strict=True))


instances = st.lists(clock_errors, min_size=1, max_size=5).filter(_ends_differ)
"""The clock errors of the instances that a pool's heartbeats go to in turn; none errs by just one heartbeat more than
the next, for then the stored end would stay as it is, to the millisecond."""


@dataclass
class Writer:
    """A pool's writers: each heartbeat may go to another instance, whose clock errs in its own way."""

    name: str
    errors_ms: list[int]
    dies_ms: int | None = None
    starts_ms: int = 0
    sent: int = 0
    stored_end_ms: int | None = None
    last_ms: int | None = None
    interval_ms: int = HEARTBEAT_MS

    def act(self, now_ms: int) -> None:
        """Send the heartbeat that is due by ``now_ms``."""
        due_ms = self.starts_ms + self.sent * self.interval_ms
        while due_ms <= now_ms and (self.dies_ms is None or due_ms < self.dies_ms):
            error_ms = self.errors_ms[self.sent % len(self.errors_ms)]
            self.stored_end_ms = due_ms + error_ms + LEASE_MS
            self.last_ms, self.sent = due_ms, self.sent + 1
            due_ms = self.starts_ms + self.sent * self.interval_ms

    def item(self) -> list[PoolItem]:
        if self.stored_end_ms is None:
            return []
        return [
            TableItem(key=key(self.name), record=pool(self.name), relay_id="r", ends_ms=WALL_MS + self.stored_end_ms)
        ]


@dataclass
class Table:
    """The table and one reader of it, which began before any writer."""

    writers: list[Writer]
    listed: Listed = field(default_factory=Listed)
    good_ms: list[int] = field(default_factory=list)

    def run_read(self, now_ms: int) -> None:
        for writer in self.writers:
            writer.act(now_ms)
        self.listed.read(T0_MS + now_ms, WALL_MS + now_ms, [each for writer in self.writers for each in writer.item()])
        self.good_ms.append(now_ms)


@given(errors_ms=instances, phase_ms=st.integers(1, 4_999))
def test_l4_clock_errors_of_an_hour_never_kill_a_pool_that_renews(errors_ms: list[int], phase_ms: int) -> None:
    writer = Writer("a", errors_ms, starts_ms=phase_ms)
    table = Table([writer])
    for now_ms in range(0, 120_000, SECOND_MS):
        table.run_read(now_ms)
        if now_ms >= phase_ms + HEARTBEAT_MS + SECOND_MS:
            assert table.listed.lists(), "its second heartbeat tells, whatever the first one's stored end"
    assert table.listed.removed == []


@given(
    errors_ms=instances,
    dies_ms=st.integers(1, 60_000),
    phase_ms=st.integers(0, 4_999),
)
def test_l4_clock_errors_of_an_hour_keep_no_dead_pool_beyond_its_lease_and_one_read(
    errors_ms: list[int], dies_ms: int, phase_ms: int
) -> None:
    writer = Writer("a", errors_ms, starts_ms=phase_ms, dies_ms=dies_ms)
    table = Table([writer])
    for now_ms in range(0, 90_000, SECOND_MS):
        table.run_read(now_ms)
        gone_ms = now_ms - (writer.last_ms if writer.last_ms is not None else now_ms)
        if gone_ms > LEASE_MS + 2 * SECOND_MS:
            assert not table.listed.lists()


@given(
    error_ms=clock_errors,
    starts_ms=st.integers(-20_000, 0),
    dies_ms=st.one_of(st.none(), st.integers(1, 20_000)),
)
def test_l4_a_reader_that_starts_late_is_right_within_a_heartbeat_or_a_lease(
    error_ms: int, starts_ms: int, dies_ms: int | None
) -> None:
    """At the first good read a clock error may hide a pool until its next renewal, or show a dead one for a lease."""
    writer = Writer("a", [error_ms], starts_ms=starts_ms, dies_ms=dies_ms)
    table = Table([writer])
    for now_ms in range(0, 60_000, SECOND_MS):
        table.run_read(now_ms)
        last_ms = writer.last_ms
        if last_ms is not None and last_ms > 0 and now_ms - last_ms < LEASE_MS:
            assert table.listed.lists()
        if dies_ms is not None and now_ms > max(dies_ms, 0) + LEASE_MS + SECOND_MS:
            assert not table.listed.lists()


@given(
    errors_ms=instances,
    outages=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 400)), max_size=4),
)
def test_l5_no_outage_however_long_costs_a_live_pool_then_or_by_the_first_good_read_after(
    errors_ms: list[int], outages: list[tuple[int, int]]
) -> None:
    # Not before the first good read, where a stored end is all there is to go by.
    writer = Writer("a", errors_ms, starts_ms=1)
    table = Table([writer])
    now_ms = 0
    for good_reads, outage_s in [*outages, (30, 0)]:
        for _ in range(good_reads):
            table.run_read(now_ms)
            now_ms += SECOND_MS
        now_ms += outage_s * SECOND_MS
    assert table.listed.removed == []


@given(
    outages=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 400)), max_size=4),
    dies_ms=st.integers(1, 40_000),
)
def test_l5_what_a_dead_pool_gains_is_the_time_in_which_nothing_could_be_read(
    outages: list[tuple[int, int]], dies_ms: int
) -> None:
    writer = Writer("a", [0], dies_ms=dies_ms)
    table = Table([writer])
    now_ms, seen_ms = 0, 0
    for good_reads, outage_s in [*outages, (60, 0)]:
        for _ in range(good_reads):
            before = writer.sent
            table.run_read(now_ms)
            if writer.sent != before:
                seen_ms = now_ms
            now_ms += SECOND_MS
        now_ms += outage_s * SECOND_MS
    assert not table.listed.lists()
    credit_ms = sum(
        max(0, after - before - EXPECTED_GAP_MS)
        for before, after in zip(table.good_ms, table.good_ms[1:], strict=False)
        if after > seen_ms
    )
    gaps_ms = [after - before for before, after in zip(table.good_ms, table.good_ms[1:], strict=False)]
    ((removed_ms, _, cause),) = table.listed.removed
    assert cause is RemovalCause.EXPIRED
    assert removed_ms - T0_MS - seen_ms <= LEASE_MS + credit_ms + max(gaps_ms)
