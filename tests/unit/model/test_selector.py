"""Selectors: filters AND, repeats OR, labels AND."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.errors import FieldError, InvalidInput
from poolmuster.model.selector import EVERYTHING, FILTERS, Selector, parse_selector
from tests.support.registrations import pool

GOLD = pool(
    "llama",
    location={"region": "eu"},
    models=[{"id": "big/model:1", "aliases": ["big"]}, {"id": "small"}],
    labels={"tier": "gold", "empty": ""},
)
BARE = pool("bare", "other")

PARAMETERS = st.lists(
    st.tuples(
        st.sampled_from(FILTERS), st.sampled_from(["llama", "bare", "c", "n", "eu", "big", "tier", "tier=gold", "x=1"])
    ),
    max_size=6,
)


def matching(*parameters: tuple[str, str]) -> list[str]:
    selector = parse_selector(parameters)
    return [each.key.dgd_name for each in (GOLD, BARE) if selector.matches(each)]


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ([], ["llama", "bare"]),
        ([("model", "big/model:1")], ["llama"]),
        ([("model", "big")], ["llama"]),
        ([("model", "Big")], []),
        ([("model", "absent"), ("model", "small")], ["llama"]),
        ([("cluster_id", "c")], ["llama"]),
        ([("cluster_id", "c"), ("cluster_id", "other")], ["llama", "bare"]),
        ([("namespace", "n")], ["llama", "bare"]),
        ([("namespace", "n"), ("dgd_name", "bare")], ["bare"]),
        ([("dgd_name", "bare"), ("model", "big")], []),
        ([("region", "eu")], ["llama"]),
        ([("region", "")], []),
        ([("label", "tier")], ["llama"]),
        ([("label", "tier=gold")], ["llama"]),
        ([("label", "tier=silver")], []),
        ([("label", "tier=gold"), ("label", "empty=")], ["llama"]),
        ([("label", "tier=gold"), ("label", "tier=silver")], []),
        ([("label", "empty=x")], []),
        ([("label", "absent")], []),
    ],
)
def test_what_a_selector_selects(parameters: list[tuple[str, str]], names: list[str]) -> None:
    assert matching(*parameters) == names


def test_a_label_value_may_hold_the_sign_between_name_and_value() -> None:
    selector = parse_selector([("label", "a=b=c")])
    assert selector.labels == {("a", "b=c")}
    assert selector.matches(pool(labels={"a": "b=c"}))


@pytest.mark.parametrize("text", ["", "=", "=gold"])
def test_a_label_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_selector([("label", text)])
    assert caught.value.field_errors == (FieldError("label", "has the form name or name=value"),)


def test_a_selector_without_filters_selects_everything() -> None:
    assert parse_selector([]) == EVERYTHING
    assert EVERYTHING.selects_all
    assert not parse_selector([("model", "big")]).selects_all


@given(PARAMETERS, PARAMETERS, st.randoms(use_true_random=False))
def test_digests_are_equal_exactly_for_equal_selectors(
    one: list[tuple[str, str]], other: list[tuple[str, str]], random: object
) -> None:
    first, second = parse_selector(one), parse_selector(other)
    assert (first.digest == second.digest) == (first == second)
    assert parse_selector(reversed(one + one)).digest == first.digest


def test_a_digest_tells_filters_of_one_value_apart() -> None:
    selectors = [parse_selector([(name, "x")]) for name in FILTERS] + [parse_selector([("label", "x=None")])]
    assert len({selector.digest for selector in selectors}) == len(selectors)
    assert Selector(models=frozenset(["\ud800"])).digest


@given(PARAMETERS, PARAMETERS)
def test_a_further_filter_never_selects_more(parameters: list[tuple[str, str]], further: list[tuple[str, str]]) -> None:
    new = [(name, value) for name, value in further if name == "label" or name not in dict(parameters)]
    assert set(matching(*parameters, *new)) <= set(matching(*parameters))
