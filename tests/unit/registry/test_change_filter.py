"""What a change means through a selector: the whole table."""

import pytest

from poolmuster.model.change import Change, ChangeKind, PoolChange, Removal, RemovalCause
from poolmuster.model.registration import Pool
from poolmuster.model.selector import EVERYTHING, Selector
from poolmuster.registry.change_filter import filter_change, is_selected
from tests.support.registrations import pool

GOLD = Selector(labels=frozenset({("tier", "gold")}))
GOLD_POOL = pool("a", labels={"tier": "gold"})
GOLD_POOL_LATER = pool("a", labels={"tier": "gold"}, weight=1)
LEAD_POOL = pool("a", labels={"tier": "lead"})
LEFT = Removal(cause=RemovalCause.DEREGISTERED, at_ms=1)


def change(kind: ChangeKind, before: Pool | None, after: Pool | None, removal: Removal | None = None) -> PoolChange:
    return Change(number=7, kind=kind, at_ms=5, monotonic_ms=6, before=before, after=after, removal=removal)


@pytest.mark.parametrize(
    ("before", "after", "removal", "told", "cause"),
    [
        (None, GOLD_POOL, None, ChangeKind.ADDED, None),
        (None, LEAD_POOL, None, None, None),
        (GOLD_POOL, GOLD_POOL_LATER, None, ChangeKind.CHANGED, None),
        (LEAD_POOL, GOLD_POOL, None, ChangeKind.ADDED, None),
        (LEAD_POOL, LEAD_POOL, None, None, None),
        (GOLD_POOL, LEAD_POOL, None, ChangeKind.REMOVED, RemovalCause.FILTERED),
        (GOLD_POOL, None, LEFT, ChangeKind.REMOVED, RemovalCause.DEREGISTERED),
        (LEAD_POOL, None, LEFT, None, None),
    ],
)
def test_l10_a_watcher_is_told_what_happened_to_its_own_list(
    before: Pool | None,
    after: Pool | None,
    removal: Removal | None,
    told: ChangeKind | None,
    cause: RemovalCause | None,
) -> None:
    kind = ChangeKind.CHANGED if before and after else ChangeKind.ADDED if after else ChangeKind.REMOVED
    seen = filter_change(change(kind, before, after, removal), GOLD)
    assert (seen.kind if seen else None) == told
    if seen is not None:
        assert (seen.number, seen.at_ms) == (7, 5)
        assert (seen.removal.cause if seen.removal else None) == cause
        assert (seen.after is None) == (told is ChangeKind.REMOVED)
        assert (seen.before is None) == (told is ChangeKind.ADDED)


def test_completeness_concerns_everyone_and_everything_is_seen_through_no_filter() -> None:
    completeness = change(ChangeKind.COMPLETENESS, None, None)
    assert filter_change(completeness, GOLD) is completeness
    added = change(ChangeKind.ADDED, None, LEAD_POOL)
    assert filter_change(added, EVERYTHING) is added


def test_nothing_is_not_selected() -> None:
    assert not is_selected(None, EVERYTHING)
    assert is_selected(GOLD_POOL, GOLD)
    assert not is_selected(LEAD_POOL, GOLD)
