"""What a whole read of a shared table says about who lives (rules L4 and L5).

Writers stamp each item with the end of its lease, by clocks that this reader has no reason to trust. So a stored end is
not compared with the time but with the stored end that was seen before: another one means that somebody renewed.

| the item now | in the previous good read | what it means |
| --- | --- | --- |
| end 0 | any | deregistered |
| another end, or other content | there | renewed: it lives for its lease from the start of this read |
| the same end | there | not renewed |
| an end to come | not there | renewed |
| an end that has passed | not there | not renewed |
| not there | there | not renewed; its lease runs on |

The first good read has nothing to compare with: there, and only there, an entry lives to its stored end by the table's
clock, one lease at most. Time between the starts of two good reads that exceeds three seconds is credited, because
renewals in it could not be seen.

A foreign region is silent when a lease has passed, by good reads, without a write from it, though entries of it ended
that nobody deregistered. At the first good read its last write is taken to be a lease before its latest stored end.
"""

from collections.abc import Iterable

import msgspec

from poolmuster.model.change import Deregistration, DeregistrationReason
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Registration
from poolmuster.registry.updates import Renewal, SourceUpdate

EXPECTED_GAP_MS = 3_000
"""Time between two good reads that does not count as an outage."""

RECENT_MS = 3_600_000
"""How far back an ended entry says something about an outage of the table, and how long a region is waited for."""


class TableItem(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One item of the table, parsed. ``ends_ms`` is the stored end by its writer, 0 where it was deregistered."""

    key: PoolKey
    registration: Registration
    ends_ms: int
    lease_ms: int | None = None
    region: str | None = None
    left_reason: DeregistrationReason | None = None
    left_detail: str | None = None
    left_relay_id: str | None = None


class PreviousItem(msgspec.Struct, frozen=True, gc=False):
    """What the previous good read showed of a key.

    ``lives_until_ms`` is when its last renewal wears off by the monotonic clock, or would have, no credit counted;
    ``None`` where nobody is known to have renewed it, or it has left.
    """

    ends_ms: int
    registration: Registration
    region: str | None
    lives_until_ms: int | None


class RegionState(msgspec.Struct, gc=False):
    """What is known of a foreign region.

    ``written_ms`` is when a write from it was last seen, moved on by every outage since; ``lease_ms`` is the lease of
    that write, this reader's at least; ``held`` counts its entries that were live once and have not left.
    """

    written_ms: int
    lease_ms: int
    held: int = 0


class ScanDiff:
    """Turns whole reads into `SourceUpdate`s. Times are monotonic but for the table's clock, which is wall clock."""

    def __init__(self, lease_ms: int, own_region: str | None) -> None:
        self._lease_ms = lease_ms
        self._own_region = own_region
        self._previous: dict[PoolKey, PreviousItem] = {}
        self._regions: dict[str, RegionState] = {}
        self._last_started_ms: int | None = None
        self.warm_at_ms: int | None = None
        """Until when (monotonic) the list is not complete, because the table looked as after an outage."""

    @property
    def has_read(self) -> bool:
        """Whether there was a good read."""
        return self._last_started_ms is not None

    def is_renewal(self, registration: Registration, now_ms: int) -> bool:
        """Whether the last good read showed a live entry with just these facts; if so, a put of them is a renewal."""
        seen = self._previous.get(registration.key)
        return (
            seen is not None
            and seen.lives_until_ms is not None
            and seen.lives_until_ms > now_ms
            and seen.registration.pool.body == registration.pool.body
        )

    def apply_scan(self, items: Iterable[TableItem], started_ms: int, table_now_ms: int) -> SourceUpdate:
        """A good read that began at ``started_ms``, when the table's clock said ``table_now_ms``."""
        first = self._last_started_ms is None
        gap_ms = 0 if self._last_started_ms is None else started_ms - self._last_started_ms
        credit_ms = max(0, gap_ms - EXPECTED_GAP_MS)
        for region in self._regions.values():
            region.written_ms += credit_ms
        renewals: list[Renewal] = []
        departures: list[Deregistration] = []
        now_seen: dict[PoolKey, PreviousItem] = {}
        recently_ended = 0
        for item in items:
            before = self._previous.get(item.key)
            lease_ms = item.lease_ms or self._lease_ms
            lives_until_ms = None if before is None else before.lives_until_ms
            if item.ends_ms == 0:
                if before is None or before.ends_ms != 0:
                    departures.append(_deregistration(item))
                lives_until_ms = None
            elif (remaining_ms := self._remaining_ms(item, before, lease_ms, table_now_ms, first=first)) > 0:
                renewals.append(Renewal(item.registration, lease_ms, remaining_ms))
                lives_until_ms = started_ms + remaining_ms
                self._record_write(item.region, lives_until_ms - lease_ms if first else started_ms, lease_ms)
            elif first and table_now_ms - item.ends_ms < RECENT_MS:
                recently_ended += 1
                lives_until_ms = started_ms + item.ends_ms - table_now_ms
                self._record_write(item.region, lives_until_ms - lease_ms, lease_ms)
            now_seen[item.key] = PreviousItem(item.ends_ms, item.registration, item.region, lives_until_ms)
        self._previous = now_seen
        self._last_started_ms = started_ms
        if first and recently_ended > len(renewals):
            self.warm_at_ms = started_ms + self._lease_ms
        self._count_held(started_ms)
        return SourceUpdate(
            started_ms=started_ms,
            credit_ms=credit_ms,
            renewals=tuple(renewals),
            deregistrations=tuple(departures),
        )

    @staticmethod
    def _remaining_ms(
        item: TableItem, before: PreviousItem | None, lease_ms: int, table_now_ms: int, *, first: bool
    ) -> int:
        """For how long from the start of the read the item shows its pool alive; 0 where it shows nothing new."""
        to_come_ms = item.ends_ms - table_now_ms
        if first:
            return max(0, min(to_come_ms, lease_ms))
        if before is None:
            return lease_ms if to_come_ms > 0 else 0
        same = before.ends_ms == item.ends_ms and before.registration.pool.body == item.registration.pool.body
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
        for seen in self._previous.values():
            if seen.lives_until_ms is not None and seen.region in self._regions:
                self._regions[seen.region].held += 1

    def stalled_regions(self, now_ms: int) -> dict[str, int]:
        """Foreign regions whose pools ended though none deregistered, with how long each has been silent.

        Replication from them may have stalled, so the list cannot be called complete; for an hour at most. Silence is
        what good reads showed: while the table cannot be read, no region is blamed for it.
        """
        read_ms = now_ms if self._last_started_ms is None else self._last_started_ms
        return {
            name: now_ms - region.written_ms
            for name, region in self._regions.items()
            if region.held and region.lease_ms <= read_ms - region.written_ms and now_ms - region.written_ms < RECENT_MS
        }


def _deregistration(item: TableItem) -> Deregistration:
    return Deregistration(key=item.key, relay_id=item.left_relay_id, reason=item.left_reason, detail=item.left_detail)
