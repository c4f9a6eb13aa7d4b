"""Items, to the letter of the layout that other implementations share."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.change import DETAIL_LIMIT, Deregistration, DeregistrationReason, PoolDeregistration
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey, check_key
from poolmuster.model.registration import Pool, parse_registration
from poolmuster.registry.table_scan import TableItem
from poolmuster.sources.dynamodb.items import Attributes, QueryOutput, attributes_of, stored_item
from poolmuster.sources.polled.items import InvalidItem, ItemParser, deregistered_item
from tests.support.registrations import deregistration, key, registration
from tests.support.table_server import live_attributes

ENDS_MS = 1_800_000_015_999
NOW_MS = 1_800_000_001_234

# Golden samples: another implementation reads these.

LIVE: Attributes = {
    "pk": {"S": "POOL"},
    "sk": {"S": "us%23east#in%25f#llama"},
    "registration": {
        "S": '{"cluster_id":"us#east","dgd_name":"llama","namespace":"in%f","weight":3,"relay_id":"r\\"\u00e91"}'
    },
    "lease_ends_ms": {"N": "1800000015999"},
    "expires_at": {"N": "1800003615"},
    "lease_ms": {"N": "15000"},
    "relay_id": {"S": 'r"\u00e91'},
    "writer": {"S": "us-east-1/boot"},
}
LEFT: Attributes = LIVE | {
    "lease_ends_ms": {"N": "0"},
    "expires_at": {"N": "1800003601"},
    "left_relay_id": {"S": 'r"\u00e91'},
    "left_reason": {"S": "no_models"},
    "left_detail": {"S": "none"},
}
PLAIN: Attributes = {
    "pk": {"S": "POOL"},
    "sk": {"S": "c#n#a"},
    "registration": {"S": '{"cluster_id": "c", "namespace": "n", "dgd_name": "a", "models": [{"id": "m"}]}'},
    "lease_ends_ms": {"N": "1800000015999"},
    "expires_at": {"N": "1800003615"},
}
"""What an implementation writes that knows only the shared attributes."""

SAMPLE = parse_registration(
    json.dumps(
        {"cluster_id": "us#east", "namespace": "in%f", "dgd_name": "llama", "relay_id": 'r"\u00e91', "weight": 3}
    ).encode()
)


def with_(item: Attributes, **attributes: Any) -> Attributes:
    """``item`` with other attributes; ``None`` takes one away."""
    return {name: value for name, value in {**item, **attributes}.items() if value is not None}


def parse(item: Attributes) -> TableItem[PoolKey, Pool]:
    return ItemParser().parse(stored_item(item))


def deregistered(item: Attributes, wanted: PoolDeregistration) -> Attributes:
    return attributes_of(deregistered_item(stored_item(item), wanted, now_ms=NOW_MS))


def test_a_live_item_is_the_golden_sample() -> None:
    assert live_attributes(SAMPLE, ends_ms=ENDS_MS, lease_ms=15_000, writer="us-east-1/boot") == LIVE


def test_without_a_relay_id_the_item_bears_none() -> None:
    item = live_attributes(registration("a"), ends_ms=ENDS_MS, lease_ms=15_000, writer="-/boot")
    assert "relay_id" not in item
    assert "relay_id" not in json.loads(item["registration"]["S"])


def test_a_deregistered_item_is_the_live_one_with_an_end_of_zero_for_an_hour() -> None:
    leaves = Deregistration(
        key=SAMPLE.key, relay_id=SAMPLE.relay_id, reason=DeregistrationReason.NO_MODELS, detail="none"
    )
    assert deregistered(LIVE, leaves) == LEFT


def test_who_leaves_without_saying_why_leaves_nothing_of_an_earlier_departure() -> None:
    left = deregistered(LEFT, deregistration("llama"))
    assert {name for name in left if name.startswith("left_")} == set()
    assert left["lease_ends_ms"] == {"N": "0"}


def test_deregistering_keeps_what_another_implementation_added() -> None:
    foreign = with_(PLAIN, extra={"M": {"x": {"L": [{"BOOL": True}]}}})
    assert deregistered(foreign, deregistration())["extra"] == foreign["extra"]


def test_our_item_is_read_back_whole() -> None:
    item = parse(LIVE)
    assert (item.key, item.ends_ms, item.lease_ms, item.region) == (SAMPLE.key, ENDS_MS, 15_000, "us-east-1")
    assert item.record.body == SAMPLE.pool.body
    assert item.relay_id == SAMPLE.relay_id
    assert (item.left_relay_id, item.left_reason, item.left_detail) == (None, None, None)


def test_a_departure_is_read_back_whole() -> None:
    item = parse(LEFT)
    assert item.ends_ms == 0
    assert (item.left_relay_id, item.left_reason, item.left_detail) == (
        SAMPLE.relay_id,
        DeregistrationReason.NO_MODELS,
        "none",
    )


def test_an_item_without_our_attributes_is_read_all_the_same() -> None:
    item = parse(PLAIN)
    assert (item.key, item.ends_ms) == (key(), ENDS_MS)
    assert (item.lease_ms, item.region, item.relay_id) == (None, None, None)


def test_what_another_wrote_of_any_length_is_kept_at_a_bounded_one() -> None:
    endless = {"S": "x" * 100_000}
    item = parse(with_(PLAIN, relay_id=endless, left_relay_id=endless, left_detail=endless))
    assert (item.relay_id, item.left_relay_id) == (None, None)
    assert item.left_detail == "x" * DETAIL_LIMIT


def test_a_relay_id_that_only_the_registration_has_counts() -> None:
    text = '{"cluster_id":"c","namespace":"n","dgd_name":"a","relay_id":"r"}'
    assert parse(with_(PLAIN, registration={"S": text})).relay_id == "r"


def test_a_member_status_of_a_foreign_item_is_dropped() -> None:
    text = '{"cluster_id":"c","namespace":"n","dgd_name":"a","status":{"x":1}}'
    item = parse(with_(PLAIN, registration={"S": text}))
    assert item.record.body == registration("a").pool.body


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1800000015999", 1_800_000_015_999),
        ("1.0", 1),
        ("1800000015999.75", 1_800_000_015_999),
        ("1.8E+12", 1_800_000_000_000),
        ("0", 0),
        ("0.0", 0),
        ("-0", 0),
        ("-5", -5),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_numbers_in_every_form_that_dynamodb_gives(text: str, number: int) -> None:
    assert parse(with_(PLAIN, lease_ends_ms={"N": text})).ends_ms == number


@pytest.mark.parametrize(
    "text", ["NaN", "nan.", "Infinity", "1e999", "-1E999", "9" * 38, "9" * 41, "x", "", "1.0.0", "0.5", "-0.5"]
)
def test_an_end_that_is_no_time_is_a_fault_and_never_zero(text: str) -> None:
    with pytest.raises(InvalidItem, match="lease_ends_ms"):
        parse(with_(PLAIN, lease_ends_ms={"N": text}))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"registration": None}, "no string 'registration'"),
        ({"registration": {"B": "e30="}}, "no string 'registration'"),
        ({"registration": {"S": "{"}}, "not valid"),
        ({"registration": {"S": "[]"}}, "not valid"),
        ({"registration": {"S": '{"cluster_id":"c","namespace":"n"}'}}, "/dgd_name is required"),
        ({"registration": {"S": '{"a":1,"a":2}'}}, "not valid"),
        ({"registration": {"S": "\ud800"}}, "UTF-8"),
        ({"sk": {"S": "c#n#b"}}, "sort key"),
        ({"sk": None}, "sort key"),
        ({"sk": {"N": "1"}}, "sort key"),
        ({"lease_ends_ms": None}, "lease_ends_ms"),
        ({"lease_ends_ms": {"S": "1800000015999"}}, "lease_ends_ms"),
        ({"lease_ends_ms": {"L": []}}, "lease_ends_ms"),
    ],
)
def test_an_item_that_does_not_parse_says_why(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidItem, match=why):
        parse(with_(PLAIN, **changed))


def test_a_foreign_item_passes_the_checks_of_a_registration_or_is_none() -> None:
    text = '{"cluster_id":"c","namespace":"n","dgd_name":"a","frontend_url":"ftp://x"}'
    with pytest.raises(InvalidItem, match="/frontend_url"):
        parse(with_(PLAIN, registration={"S": text}))


@pytest.mark.parametrize("lease", [{"N": "0"}, {"N": "-1"}, {"N": "86400001"}, {"N": "x"}, {"S": "15000"}, {"L": []}])
def test_a_lease_of_its_own_that_makes_no_sense_is_none(lease: dict[str, Any]) -> None:
    assert parse(with_(LIVE, lease_ms=lease)).lease_ms is None


@pytest.mark.parametrize(
    ("writer", "region"),
    [
        ({"S": "eu-west-1/b/c"}, "eu-west-1"),
        ({"S": "eu-west-1"}, "eu-west-1"),
        ({"S": "-/boot"}, None),
        ({"S": "/boot"}, None),
        ({"S": ""}, None),
        ({"S": "a b/boot"}, None),
        ({"S": "x" * 64 + "/boot"}, None),
        ({"S": "\u00e9u/boot"}, None),
        ({"NULL": True}, None),
        (None, None),
    ],
)
def test_the_region_is_the_writers_where_it_names_one(writer: dict[str, Any] | None, region: str | None) -> None:
    assert parse(with_(LIVE, writer=writer)).region == region


def test_a_reason_that_this_version_does_not_know_is_none() -> None:
    assert parse(with_(LEFT, left_reason={"S": "tired"})).left_reason is None


parts = st.text(min_size=1, max_size=30)


@st.composite
def keys(draw: st.DrawFn) -> PoolKey:
    """Any key that may be stored."""
    found = PoolKey(draw(parts), draw(parts), draw(parts))
    try:
        check_key(found)
    except InvalidInput:
        return PoolKey("c", draw(st.sampled_from(("#", "%", "%23", "a#b", "##", "%2523"))), "n")
    return found


@given(keys(), st.one_of(st.none(), st.text(min_size=1, max_size=20).filter(str.isprintable)))
def test_any_key_and_relay_id_round_trip(found: PoolKey, relay_id: str | None) -> None:
    document = {"cluster_id": found.cluster_id, "namespace": found.namespace, "dgd_name": found.dgd_name}
    sent = parse_registration(json.dumps({**document, "relay_id": relay_id}).encode())
    item = live_attributes(sent, ends_ms=ENDS_MS, lease_ms=15_000, writer="-/b")
    read = parse(msgspec.json.decode(msgspec.json.encode(item)))
    assert read.key == found
    assert read.relay_id == relay_id
    assert read.record.body == sent.pool.body


@given(keys(), keys())
def test_two_keys_never_share_an_item(one: PoolKey, other: PoolKey) -> None:
    assert (one.storage_key == other.storage_key) == (one == other)


def test_a_page_with_attributes_of_every_type_is_read() -> None:
    types: dict[str, Any] = {
        "B": "e30=",
        "BOOL": True,
        "NULL": True,
        "L": [{"S": "x"}],
        "M": {"x": {"N": "1"}},
        "SS": ["x"],
        "NS": ["1"],
        "BS": ["e30="],
    }
    item = PLAIN | {name: {name: value} for name, value in types.items()}
    page = msgspec.json.decode(msgspec.json.encode({"Items": [item], "Count": 1}), type=QueryOutput)
    assert parse(page.Items[0]).key == key()
