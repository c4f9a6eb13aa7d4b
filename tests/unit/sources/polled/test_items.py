"""Parsing the items of a table: each text once, from one scan to the next."""

import pytest

from poolmuster.sources.polled.items import InvalidItem, ItemParser, live_item
from poolmuster.sources.polled.table import StoredItem
from tests.support.registrations import registration


def item(weight: int = 1) -> StoredItem:
    return live_item(registration("a", "r", weight=weight), ends_ms=1, lease_ms=1, writer="-/b")


def test_the_result_of_a_text_is_cached_from_one_whole_scan_to_the_next_and_no_longer() -> None:
    parser = ItemParser()
    parser.begin_scan()
    first = parser.parse(item())
    parser.end_scan()
    parser.begin_scan()
    assert parser.parse(item()).record is first.record
    parser.end_scan()
    parser.begin_scan()
    parser.end_scan()
    parser.begin_scan()
    assert parser.parse(item()).record is not first.record


def test_what_scans_that_fail_halfway_have_parsed_is_kept_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a table that takes longer to parse than a scan may take would never be read."""
    monkeypatch.setattr("poolmuster.sources.polled.items.CARRIED_LIMIT_BYTES", 1_000)
    parser = ItemParser()
    for weight in range(100):
        parser.begin_scan()
        parser.parse(item(weight))
    assert len(parser._kept) == 1
    assert 1_000 <= sum(map(len, parser._parsed)) < 1_100
    known_bytes = parser.parsed_bytes
    parser.begin_scan()
    parser.parse(item(0))
    assert parser.parsed_bytes == known_bytes
    parser.end_scan()
    assert len(parser._parsed) == 1


def test_a_text_that_cannot_be_parsed_is_not_parsed_again() -> None:
    parser = ItemParser()
    for _ in range(2):
        with pytest.raises(InvalidItem):
            parser.parse(StoredItem(key="c#n#a", registration="{", ends_ms=1))
        parser.end_scan()
    assert parser.parsed_bytes == 1
