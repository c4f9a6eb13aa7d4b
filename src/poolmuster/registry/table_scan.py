"""What a scan of a whole table means for the leases in it (rules L4 and L5).

Writers stamp each item with the end of its lease, by clocks that this reader has no reason to trust. So a stored end is
not compared with the time but with the stored end in the previous scan: another one means that the item was renewed.

| the item now | in the previous good scan | meaning |
| --- | --- | --- |
| end 0 | any | deregistered |
| another end, or other content | there | renewed: live for its lease from the start of this scan |
| the same end | there | not renewed |
| an end in the future | not there | renewed |
| an end in the past | not there | not renewed |
| not there | there | not renewed; its lease runs on |

The first good scan has nothing to compare with: there, and only there, an item is live until its stored end by the
table's clock, one lease at most. Time between the starts of two good scans that exceeds three seconds is credited,
because renewals in it could not be seen.

A foreign region is stalled when a lease has passed, by good scans, without a write from it, though leases of it ended
without deregistering. At the first good scan its last write is taken to be a lease before its latest stored end.

The table is unknown before the first good scan and stale when the last one began over three seconds ago (rule L8). It
is stale for a lease as well where most leases had ended when it was first scanned, as after an outage of the table.
"""

from collections.abc import Iterable
from typing import Generic

import msgspec

from poolmuster.model.change import Deregistration, DeregistrationReason
from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.registry.source_status import SourceStatus
from poolmuster.registry.updates import K, R, Renewal, SourceUpdate

EXPECTED_GAP_MS = 3_000
"""Time between two good scans that does not count as an outage."""

STALE_AFTER_MS = 3_000
"""How long after its start a good scan shows the table as fresh."""

RECENT_MS = 3_600_000
"""How long ago a lease may have ended to be a sign of an outage of the table, and how long a region may be stalled."""


class TableItem(msgspec.Struct, Generic[K, R], frozen=True, gc=False, kw_only=True):
    """One parsed item. ``ends_ms`` is the stored end by its writer's clock, 0 where it was deregistered."""

    key: K
    record: R
    relay_id: str | None
    ends_ms: int
    lease_ms: int | None = None
    region: str | None = None
    left_reason: DeregistrationReason | None = None
    left_detail: str | None = None
    left_relay_id: str | None = None


class PreviousItem(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """An item in the previous good scan.

    ``lives_until_ms`` is the monotonic time at which the lease of its last renewal ends, or would have ended, without
    credit; ``None`` where no renewal of it was seen, or it was deregistered.
    """

    ends_ms: int
    record: R
    region: str | None
    lives_until_ms: int | None


class RegionState(msgspec.Struct, gc=False):
    """A foreign region.

    ``written_ms`` is when a write from it was last seen, moved on by every outage since; ``lease_ms`` is the lease of
    that write, this reader's at least; ``held`` counts its items that were live once and were not deregistered.
    """

    written_ms: int
    lease_ms: int
    held: int = 0


class ScanDiff(Generic[K, R]):
    """Turns good scans into updates. Times are monotonic but for the table's clock, which is wall clock."""

    def __init__(self, lease_ms: int, own_region: str | None) -> None:
        self._lease_ms = lease_ms
        self._own_region = own_region
        self._previous: dict[K, PreviousItem[R]] = {}
        self._regions: dict[str, RegionState] = {}
        self._last_started_ms: int | None = None
        self.warm_at_ms: int | None = None
        """Until when the list is not complete, because the table looked as after an outage."""

    def is_renewal(self, record: R, now_ms: int) -> bool:
        """Whether a put of ``record`` is a renewal: the last good scan showed it live with the same facts."""
        previous = self._previous.get(record.key)
        return (
            previous is not None
            and previous.lives_until_ms is not None
            and previous.lives_until_ms > now_ms
            and previous.record.body == record.body
        )

    def apply_scan(self, items: Iterable[TableItem[K, R]], started_ms: int, table_now_ms: int) -> SourceUpdate[K, R]:
        """The update of a good scan that began at ``started_ms``, at ``table_now_ms`` by the table's clock."""
        first = self._last_started_ms is None
        gap_ms = 0 if self._last_started_ms is None else started_ms - self._last_started_ms
        credit_ms = max(0, gap_ms - EXPECTED_GAP_MS)
        for region in self._regions.values():
            region.written_ms += credit_ms
        renewals: list[Renewal[R]] = []
        deregistrations: list[Deregistration[K]] = []
        scanned: dict[K, PreviousItem[R]] = {}
        recently_ended = 0
        for item in items:
            before = self._previous.get(item.key)
            lease_ms = item.lease_ms or self._lease_ms
            lives_until_ms = None if before is None else before.lives_until_ms
            if item.ends_ms == 0:
                if before is None or before.ends_ms != 0:
                    deregistrations.append(_deregistration(item))
                lives_until_ms = None
            elif (remaining_ms := self._remaining_ms(item, before, lease_ms, table_now_ms, first=first)) > 0:
                renewals.append(Renewal(item.record, item.relay_id, lease_ms, remaining_ms))
                lives_until_ms = started_ms + remaining_ms
                self._record_write(item.region, lives_until_ms - lease_ms if first else started_ms, lease_ms)
            elif first and table_now_ms - item.ends_ms < RECENT_MS:
                recently_ended += 1
                lives_until_ms = started_ms + item.ends_ms - table_now_ms
                self._record_write(item.region, lives_until_ms - lease_ms, lease_ms)
            scanned[item.key] = PreviousItem(item.ends_ms, item.record, item.region, lives_until_ms)
        self._previous = scanned
        self._last_started_ms = started_ms
        if first and recently_ended > len(renewals):
            self.warm_at_ms = started_ms + self._lease_ms
        self._count_held(started_ms)
        return SourceUpdate(
            started_ms=started_ms,
            credit_ms=credit_ms,
            renewals=tuple(renewals),
            deregistrations=tuple(deregistrations),
            expire=True,
        )

    @staticmethod
    def _remaining_ms(
        item: TableItem[K, R], before: PreviousItem[R] | None, lease_ms: int, table_now_ms: int, *, first: bool
    ) -> int:
        """For how long from the start of the scan the item's record is live; 0 where the item shows no renewal."""
        ends_in_ms = item.ends_ms - table_now_ms
        if first:
            return max(0, min(ends_in_ms, lease_ms))
        if before is None:
            return lease_ms if ends_in_ms > 0 else 0
        same = before.ends_ms == item.ends_ms and before.record.body == item.record.body
        return 0 if same else lease_ms

    def _record_write(self, region: str | None, at_ms: int, lease_ms: int) -> None:
        if region is None or region == self._own_region:
            return
        known = self._regions.setdefault(region, RegionState(at_ms, lease_ms))
        if at_ms >= known.written_ms:
            known.written_ms, known.lease_ms = at_ms, max(lease_ms, self._lease_ms)

    def _count_held(self, now_ms: int) -> None:
        for name in [name for name, region in self._regions.items() if now_ms - region.written_ms >= RECENT_MS]:
            del self._regions[name]
        for region in self._regions.values():
            region.held = 0
        for item in self._previous.values():
            if item.lives_until_ms is not None and item.region in self._regions:
                self._regions[item.region].held += 1

    def stalled_regions(self, now_ms: int) -> dict[str, int]:
        """Foreign regions whose leases ended without deregistering, with how long each has not written.

        Replication from them may have stalled, so the list is not complete; for an hour at most. Only good scans show
        that a region does not write: while the table cannot be read, no region counts as stalled for it.
        """
        read_ms = now_ms if self._last_started_ms is None else self._last_started_ms
        return {
            name: now_ms - region.written_ms
            for name, region in self._regions.items()
            if region.held and region.lease_ms <= read_ms - region.written_ms and now_ms - region.written_ms < RECENT_MS
        }

    def statuses(self, table: str, now_ms: int, failure: tuple[SourceReason, str] | None) -> tuple[SourceStatus, ...]:
        """The status of the table named ``table``, and one of each stalled region.

        ``failure`` is the reason and the detail of the last scan, where it failed.
        """
        regions = self.stalled_regions(now_ms)
        return (
            self._table_status(table, now_ms, failure),
            *(
                SourceStatus(
                    kind=SourceKind.REGION,
                    name=f"region:{region}",
                    state=SourceState.STALE,
                    reason=SourceReason.REPLICATION,
                    detail="All its pools ended without deregistering; replication from it may have stalled",
                    last_good_ms=now_ms - silent_ms,
                )
                for region, silent_ms in sorted(regions.items())
            ),
        )

    def _table_status(self, table: str, now_ms: int, failure: tuple[SourceReason, str] | None) -> SourceStatus:
        good_ms, state, clears_at_ms = self._last_started_ms, SourceState.STALE, None
        if good_ms is None:
            state = SourceState.UNKNOWN
            reason, detail = failure or (SourceReason.WARMING_UP, "The first read is under way")
        elif now_ms - good_ms > STALE_AFTER_MS:
            reason, detail = failure or (SourceReason.TIMEOUT, "The last good read is too long ago")
        elif self.warm_at_ms is not None and self.warm_at_ms > now_ms:
            reason, clears_at_ms = SourceReason.WARMING_UP, self.warm_at_ms
            detail = "Most leases in the table had ended: live relays may not have registered again yet"
        else:
            return SourceStatus(kind=SourceKind.TABLE, name=table, fresh_until_ms=good_ms + STALE_AFTER_MS)
        return SourceStatus(
            kind=SourceKind.TABLE,
            name=table,
            state=state,
            reason=reason,
            detail=detail,
            clears_at_ms=clears_at_ms,
            last_good_ms=good_ms,
        )


def _deregistration(item: TableItem[K, R]) -> Deregistration[K]:
    return Deregistration(key=item.key, relay_id=item.left_relay_id, reason=item.left_reason, detail=item.left_detail)
