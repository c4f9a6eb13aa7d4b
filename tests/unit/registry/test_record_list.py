"""The list against a plain sorted dictionary, and its digest against everything that must not change it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.registration import Pool
from poolmuster.registry import record_list as listing_module
from poolmuster.registry.record_list import RecordList
from tests.support.registrations import key, pool

names = st.sampled_from([f"{first}{second}" for first in "aZ\u00e9\U0001f600" for second in "0123456789"])
steps = st.lists(st.tuples(st.booleans(), names, st.integers(0, 2)), max_size=120)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of three, so that they split and empty all the time."""
    monkeypatch.setattr(listing_module, "PAGE_RECORDS", 3)


def joined(listing: RecordList[Pool]) -> bytes:
    return b"".join([page.encoded() for page in listing.pages()]).removeprefix(b",")


@given(steps, st.booleans(), st.booleans())
def test_it_equals_a_sorted_dictionary(script: list[tuple[bool, str, int]], looks: bool, keeps: bool) -> None:
    listing, plain = RecordList[Pool](keeps_bytes=keeps), dict[str, Pool]()
    for put, name, weight in script:
        if put:
            plain[name] = pool(name, weight=weight)
            listing.put(plain[name])
        else:
            plain.pop(name, None)
            listing.remove(key(name))
        assert listing.get(key(name)) is plain.get(name)
        if looks:
            assert joined(listing) == b",".join(plain[each].body for each in sorted(plain))
    expected = [plain[name] for name in sorted(plain)]
    assert list(listing) == expected
    assert len(listing) == listing.count == len(expected)
    assert joined(listing) == b",".join(each.body for each in expected)


@given(st.dictionaries(names, st.integers(0, 2), max_size=30), st.randoms(use_true_random=False))
def test_equal_lists_have_equal_bytes_and_digests_whatever_way_they_came(
    weights: dict[str, int], chance: object
) -> None:
    pools = [pool(name, weight=weights[name]) for name in sorted(weights)]
    shuffled = list(pools)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a Random
    one, other = RecordList[Pool](pools), RecordList[Pool]()
    other.put(pool("to be gone", weight=9))
    for each in shuffled:
        other.put(pool(each.key.dgd_name, weight=5))
        other.put(each)
    other.remove(key("to be gone"))
    assert one.digest == other.digest
    assert joined(one) == joined(other)


def test_different_lists_have_different_digests() -> None:
    digests = {
        RecordList[Pool](pools).digest
        for pools in ([], [pool("a")], [pool("b")], [pool("a"), pool("b")], [pool("a", weight=1)])
    }
    assert len(digests) == 5


def test_pools_stand_by_the_parts_of_their_keys_each_by_code_point() -> None:
    listing = RecordList[Pool]()
    for cluster, name in [
        ("b", "a"),
        ("a/b", "x"),
        ("a", "\U0001f600"),
        ("a", "\uffff"),
        ("a", "Z"),
        ("a", "a"),
        ("a-", "a"),
    ]:
        listing.put(pool(name, cluster))
    assert [(each.key.cluster_id, each.key.dgd_name) for each in listing] == [
        ("a", "Z"),
        ("a", "a"),
        ("a", "\uffff"),
        ("a", "\U0001f600"),
        ("a-", "a"),
        ("a/b", "x"),
        ("b", "a"),
    ]
    assert [each["cluster_id"] for each in json.loads(b"[" + joined(listing) + b"]")][-1] == "b"


def test_a_change_makes_one_page_anew_and_no_more() -> None:
    listing = RecordList[Pool]([pool(f"{number:02}") for number in range(12)])
    before = listing.pages()
    listing.put(pool("04", weight=7))
    after = listing.pages()
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, False, True, True]


def test_pages_that_were_taken_stay_as_they_were_and_hold_no_bytes_of_their_own() -> None:
    listing = RecordList[Pool]([pool("a"), pool("b")])
    (page,) = listing.pages()
    assert page.encoded() is page.encoded(), "joined once while it is current"
    before = page.encoded()
    listing.put(pool("a", weight=7))
    listing.remove(key("b"))
    assert page.encoded() == before
    assert page.encoded() is not page.encoded()
    assert page.size_bytes == len(before)


def test_taking_out_what_is_not_there_changes_nothing() -> None:
    listing = RecordList[Pool]()
    listing.remove(key("a"))
    assert listing.get(key("a")) is None
    listing.put(pool("b"))
    listing.remove(key("a"))
    listing.remove(key("c"))
    assert len(listing) == 1
