"""Registrations: what is refused and where, and the canonical form of what is taken."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.errors import FieldError, InvalidInput
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool, parse_registration, registration_of, validate_url
from tests.support.registrations import body, document, registration

WORDS = st.text("ab/:é\U0001f600", min_size=1, max_size=3)
UNKNOWN = st.dictionaries(st.text("rstuvwxyz", min_size=1, max_size=4).map("x_".__add__), st.none() | WORDS, max_size=3)
MODELS = st.lists(
    st.builds(
        lambda model_id, aliases, unknown: {"id": model_id, "aliases": aliases, **unknown},
        WORDS,
        st.none() | st.lists(WORDS, max_size=3),
        UNKNOWN,
    ),
    max_size=4,
    unique_by=lambda model: model["id"],
)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "frontend_url": st.sampled_from([None, "http://a", "https://[::1]:8/v"]),
        "weight": st.none() | st.integers(0, 2**70),
        "location": st.none() | st.fixed_dictionaries({}, optional={"region": st.none() | WORDS, "zone": st.none()}),
        "models": st.none() | MODELS,
        "labels": st.none() | st.dictionaries(WORDS, st.text("ab", max_size=2), max_size=3),
        "zone_of_tomorrow": st.lists(st.integers(), max_size=3),
        "a": st.none(),
    },
)


def faults(sent: bytes) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInput) as caught:
        parse_registration(sent)
    return [(fault.pointer, fault.detail) for fault in caught.value.field_errors]


def pointers(**facts: Any) -> list[str]:
    return [pointer for pointer, _ in faults(body(**facts))]


def listed(**facts: Any) -> dict[str, Any]:
    """What a list shows of ``facts``, but for the key."""
    shown = registration(**facts).pool.document
    return {name: value for name, value in shown.items() if name not in ("cluster_id", "namespace", "dgd_name")}


def test_only_the_key_is_required() -> None:
    taken = parse_registration(b' {"dgd_name": "p", "namespace": "n",\n"cluster_id": "c"} ')
    assert taken.key == PoolKey("c", "n", "p")
    assert taken.relay_id is None
    assert taken.pool.body == b'{"cluster_id":"c","dgd_name":"p","namespace":"n"}'
    assert (taken.pool.region, taken.pool.model_names, taken.pool.labels) == (None, (), ())


def test_every_missing_part_of_the_key_is_named() -> None:
    assert faults(b"{}") == [(f"/{name}", "is required") for name in ("cluster_id", "namespace", "dgd_name")]
    assert faults(b'{"cluster_id": "c", "namespace": null, "dgd_name": "p"}') == [("/namespace", "is required")]


def test_a_bad_part_of_the_key_is_named() -> None:
    assert pointers(namespace="..") == ["/namespace"]
    assert pointers(cluster_id="x" * 1100) == [""]


@pytest.mark.parametrize("sent", [b"[]", b"null", b'"a"', b"1", b"[{}]"])
def test_a_registration_is_an_object(sent: bytes) -> None:
    assert faults(sent) == [("", "a registration is a JSON object")]


@pytest.mark.parametrize(
    ("facts", "pointer"),
    [
        ({"cluster_id": 1}, "/cluster_id"),
        ({"relay_id": ""}, "/relay_id"),
        ({"relay_id": 7}, "/relay_id"),
        ({"frontend_url": 1}, "/frontend_url"),
        ({"frontend_url": "ftp://a"}, "/frontend_url"),
        ({"weight": -1}, "/weight"),
        ({"weight": 1.5}, "/weight"),
        ({"weight": "1"}, "/weight"),
        ({"weight": True}, "/weight"),
        ({"location": "eu"}, "/location"),
        ({"location": {"region": 1}}, "/location/region"),
        ({"location": {"availability_zone": []}}, "/location/availability_zone"),
        ({"models": {}}, "/models"),
        ({"models": ["a"]}, "/models/0"),
        ({"models": [{}]}, "/models/0"),
        ({"models": [{"id": "a"}, {"id": ""}]}, "/models/1/id"),
        ({"models": [{"id": None}]}, "/models/0/id"),
        ({"models": [{"id": "a", "aliases": ["b", 1]}]}, "/models/0/aliases/1"),
        ({"models": [{"id": "a", "aliases": [""]}]}, "/models/0/aliases/0"),
        ({"models": [{"id": "a", "aliases": "b"}]}, "/models/0/aliases"),
        ({"models": [{"id": "a", "context_window": -1}]}, "/models/0/context_window"),
        ({"labels": []}, "/labels"),
        ({"status": {}}, "/status"),
        ({"status": None}, "/status"),
    ],
)
def test_what_is_wrong_is_pointed_at(facts: dict[str, Any], pointer: str) -> None:
    assert pointers(**facts) == [pointer]


@pytest.mark.parametrize("value", [1, None, {}, []])
def test_a_label_is_text(value: Any) -> None:
    (pointer,) = pointers(labels={"tier": value})
    assert pointer.startswith("/labels")


def test_several_faults_are_told_at_once() -> None:
    models = [{"id": "a", "context_window": 1}, {"id": "a", "context_window": 2}]
    assert pointers(status={}, frontend_url="x", models=models) == ["/status", "/frontend_url", "/models/1"]


def test_no_fault_speaks_of_more_than_json() -> None:
    details = [detail for _, detail in faults(body(weight="1"))]
    assert details == ["Expected 'int | null', got 'str'"]


def test_null_in_a_known_optional_field_means_absent() -> None:
    nulls = dict.fromkeys(["relay_id", "frontend_url", "weight", "location", "models", "labels"])
    assert listed(**nulls) == {}
    models = [{"id": "a", "aliases": None, "context_window": None}]
    location = {"region": None, "availability_zone": None}
    assert listed(models=models, location=location) == {"models": [{"id": "a"}], "location": {}}


def test_unknown_fields_are_kept_at_every_level_nulls_too() -> None:
    facts = {
        "tomorrow": {"b": None, "a": [None, {"z": 1, "a": 2}]},
        "nothing": None,
        "location": {"region": "eu", "planet": None},
        "models": [{"id": "a", "modalities": ["text"], "owner": None}],
    }
    assert listed(**facts) == facts


def test_the_relays_name_is_no_fact_of_the_pool() -> None:
    one, other = registration(relay_id="r1"), registration(relay_id="r2")
    assert (one.relay_id, other.relay_id) == ("r1", "r2")
    assert one.pool.body == other.pool.body
    assert one.pool.digest == other.pool.digest


def test_models_are_sorted_and_equal_ones_are_one() -> None:
    models = [
        {"id": "b", "aliases": ["y", "x", "y"]},
        {"id": "a"},
        {"aliases": ["x", "y"], "id": "b", "context_window": None},
    ]
    taken = registration(models=models).pool
    assert taken.document["models"] == [{"id": "a"}, {"aliases": ["x", "y"], "id": "b"}]
    assert taken.model_names == ("a", "b", "x", "y")


def test_one_model_with_different_facts_is_refused() -> None:
    models = [{"id": "b"}, {"id": "a"}, {"id": "b", "owner": None}, {"id": "b", "aliases": []}]
    detail = "model 'b' also stands at /models/0, with other facts"
    assert faults(body(models=models)) == [("/models/2", detail), ("/models/3", detail)]


def test_other_arrays_stay_as_sent() -> None:
    assert listed(tomorrow=["b", "a", "b"])["tomorrow"] == ["b", "a", "b"]


def test_text_is_not_normalised() -> None:
    labels = {"\u00e9": "1", "e\u0301": "2", "": ""}
    assert listed(labels=labels)["labels"] == labels
    assert registration(labels=labels).pool.labels == (("", ""), ("e\u0301", "2"), ("\u00e9", "1"))


def test_what_selectors_read() -> None:
    pool = registration(
        location={"region": "eu"}, models=[{"id": "m", "aliases": ["n"]}], labels={"b": "1", "a": "2"}
    ).pool
    assert (pool.region, pool.model_names, pool.labels) == ("eu", ("m", "n"), (("a", "2"), ("b", "1")))


def test_in_a_foreign_item_a_status_is_dropped() -> None:
    taken = parse_registration(body(status={"x": 1}, weight=3), lenient=True)
    assert taken.pool.document == document(weight=3)
    assert taken.pool.body == registration(weight=3).pool.body


@pytest.mark.parametrize(
    "facts", [{}, {"a": 1}, {"tomorrow": 1}, {"statuses": 1, "statur": 2}, {"~": 1, "\U0001f600": 2}]
)
def test_the_status_stands_in_its_place_in_the_order_of_members(facts: dict[str, Any]) -> None:
    pool = registration(**facts).pool
    shown = pool.body_with_status(b'{"listed":true}')
    wanted = {**pool.document, "status": {"listed": True}}
    assert shown == json.dumps(wanted, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _shuffled(value: Any, random: Any) -> Any:
    if isinstance(value, dict):
        members = [(name, _shuffled(child, random)) for name, child in value.items()]
        random.shuffle(members)
        return dict(members)
    return [_shuffled(child, random) for child in value] if isinstance(value, list) else value


@given(FACTS, st.randoms(use_true_random=False))
def test_the_canonical_form_does_not_depend_on_how_it_was_written(facts: dict[str, Any], random: Any) -> None:
    plain = registration(**facts).pool
    other = _shuffled(document(**facts), random)
    if other.get("models"):
        other["models"] = random.sample(other["models"], len(other["models"])) + other["models"][:1]
        for model in other["models"]:
            if model["aliases"]:
                model["aliases"] = model["aliases"][::-1] + model["aliases"]
    again = parse_registration(json.dumps(other, indent=1).encode()).pool
    assert again.body == plain.body
    assert (again.digest, again.status_offset) == (plain.digest, plain.status_offset)


@given(FACTS)
def test_the_canonical_form_is_taken_and_stands_still(facts: dict[str, Any]) -> None:
    pool = registration(**facts).pool
    assert parse_registration(pool.body).pool.body == pool.body
    assert json.dumps(pool.document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == pool.body


@given(FACTS, FACTS)
def test_digests_are_equal_exactly_for_equal_bodies(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = registration(**one).pool, registration(**other).pool
    assert (first.digest == second.digest) == (first.body == second.body)


def test_a_decoded_document_is_read_alike() -> None:
    assert registration_of(document(weight=1)).pool.body == registration(weight=1).pool.body


def test_a_pools_document_is_its_readers_own() -> None:
    pool: Pool = registration(weight=1).pool
    pool.document["weight"] = 2
    assert pool.document["weight"] == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "https://a.example:8443/prefix/",
        "HTTP://A",
        "http://[::1]:80",
        "http://10.0.0.1:1/v1",
        "https://é.example",
        f"https://{'a' * 63}.example.",
        "http://a/%20",
        "http://a/b@c",
    ],
)
def test_what_is_a_frontends_url(url: str) -> None:
    assert validate_url(url) is None
    assert listed(frontend_url=url) == {"frontend_url": url}


def test_a_canonical_form_that_no_store_can_hold_is_refused() -> None:
    """``1e9`` becomes ``1000000000.0``: what was sent may be within the limit of a body."""
    with pytest.raises(InvalidInput) as caught:
        registration(x=[1e9] * 40_000)
    assert "canonical" in caught.value.field_errors[0].detail


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "must begin with http:// or https://"),
        ("a.example", "must begin with http:// or https://"),
        ("//a", "must begin with http:// or https://"),
        ("ftp://a", "must begin with http:// or https://"),
        ("unix:/a", "must begin with http:// or https://"),
        ("http:", "must name a host, and a port other than 0 where it names one"),
        ("http:///a", "must name a host, and a port other than 0 where it names one"),
        ("http://:80", "must name a host, and a port other than 0 where it names one"),
        ("http://a:0", "must name a host, and a port other than 0 where it names one"),
        ("http://a:65536", "is not a URL: "),
        ("http://a:b", "is not a URL: "),
        ("http://[::1", "is not a URL: "),
        ("http://u@a", "must not carry user information"),
        ("http://u:p@a", "must not carry user information"),
        ("http://@a", "must not carry user information"),
        ("http://a\\@b", "must not carry user information"),
        ("http://a\\.example/b", "must not contain a backslash"),
        ("http://a/b\\c", "must not contain a backslash"),
        (f"http://{'a' * 64}.example", "must name a host whose labels"),
        ("http://a..example", "must name a host whose labels"),
        (f"http://{'é' * 60}.example", "must name a host whose labels"),
        ("http://a?b", "must not have a query or a fragment"),
        ("http://a/?", "must not have a query or a fragment"),
        ("http://a/#", "must not have a query or a fragment"),
        (" http://a", "must not contain white space or control characters"),
        ("http://a/b c", "must not contain white space or control characters"),
        ("http://a\n", "must not contain white space or control characters"),
        ("http://a\x00", "must not contain white space or control characters"),
        ("http://a\u200b", "must not contain white space or control characters"),
    ],
)
def test_what_is_none(url: str, fault: str) -> None:
    assert (validate_url(url) or "").startswith(fault)
    with pytest.raises(InvalidInput) as caught:
        registration(frontend_url=url)
    assert caught.value.field_errors == (FieldError("/frontend_url", validate_url(url) or ""),)
