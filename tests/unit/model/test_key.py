"""Pool keys: what may be one, and that its two written forms lose nothing."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poolmuster.model.errors import FieldError, InvalidInput
from poolmuster.model.key import KEY_PARTS, STORAGE_KEY_LIMIT_BYTES, PoolKey, check_key, parse_key, validate_part

AWKWARD = st.sampled_from(
    ["/", "%", "#", "%2F", "%23", "%25", "..", ".", " ", "\t", "ä", "\u0308", "\U0001d54f", "\x00"]
)
TEXT = st.one_of(st.text(max_size=12), st.lists(AWKWARD, max_size=6).map("".join))
PARTS = TEXT.filter(lambda part: validate_part(part) is None)
KEYS = st.builds(PoolKey, PARTS, PARTS, PARTS)


@given(KEYS)
@example(PoolKey("a/b", "c%2Fd", "e#f"))
@example(PoolKey("%", "%%", "%25"))
def test_the_form_for_people_reads_back_as_the_same_key(key: PoolKey) -> None:
    assert parse_key(str(key)) == key
    assert str(key).count("/") == 2


@given(KEYS, KEYS)
@example(PoolKey("a#b", "c", "d"), PoolKey("a", "b#c", "d"))
@example(PoolKey("a%23", "b", "c"), PoolKey("a#", "b", "c"))
def test_two_different_keys_never_share_a_stored_form(one: PoolKey, other: PoolKey) -> None:
    assert (one.storage_key == other.storage_key) == (one == other)
    assert (str(one) == str(other)) == (one == other)


@given(KEYS)
def test_a_good_key_passes_the_check(key: PoolKey) -> None:
    check_key(key)


@given(KEYS, KEYS)
def test_the_order_is_part_by_part_by_code_point(one: PoolKey, other: PoolKey) -> None:
    assert (one < other) == (one.parts < other.parts)


def test_nothing_is_normalised_and_case_matters() -> None:
    assert PoolKey("a", "b", "\u00e9") != PoolKey("a", "b", "e\u0301")
    assert PoolKey("a", "b", "C") != PoolKey("a", "b", "c")


@pytest.mark.parametrize("edge", [" ", "\t", "\n", "\r", "\u00a0", "\u2003", "\u3000", "\x00", "\x1f", "\x7f", "\x85"])
def test_white_space_and_control_characters_may_stand_inside_only(edge: str) -> None:
    assert validate_part("a" + edge + "b") is None
    for part in (edge, edge + "a", "a" + edge):
        assert validate_part(part) == "must not begin or end with white space or a control character"


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ("", "must not be empty"),
        (".", "must not be '.' or '..'"),
        ("..", "must not be '.' or '..'"),
        ("a\ud800b", "must be encodable in UTF-8 (it has a lone surrogate)"),
        ("\udfff", "must be encodable in UTF-8 (it has a lone surrogate)"),
        ("...", None),
        (".a", None),
    ],
)
def test_what_a_part_may_not_be(part: str, fault: str | None) -> None:
    assert validate_part(part) == fault


def test_every_bad_part_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_key(PoolKey("", "good", ".."))
    assert [fault.pointer for fault in caught.value.field_errors] == ["/cluster_id", "/dgd_name"]


@pytest.mark.parametrize(
    ("key", "size"),
    [
        (PoolKey("a", "b", "c" * 1020), 1024),
        (PoolKey("a", "b", "é" * 510), 1024),
        (PoolKey("a", "b", "#" * 340), 1024),
        (PoolKey("a", "b", "%" * 340), 1024),
    ],
)
def test_the_limit_is_1024_bytes_of_the_stored_form(key: PoolKey, size: int) -> None:
    assert len(key.storage_key.encode()) == size == STORAGE_KEY_LIMIT_BYTES
    check_key(key)
    with pytest.raises(InvalidInput) as caught:
        check_key(PoolKey(key.cluster_id + "a", key.namespace, key.dgd_name))
    detail = "the key is 1025 bytes in its stored form; at most 1024 are allowed"
    assert caught.value.field_errors == (FieldError("", detail),)


@pytest.mark.parametrize("text", ["", "a", "a/b", "a/b/c/d", "a//c", "a/b/", "/b/c", "a/b/%20", "a/../c", "a/b/%2e%2E"])
def test_what_is_not_a_key(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_key(text)


def test_percent_signs_that_do_not_decode_to_utf_8_are_refused() -> None:
    with pytest.raises(InvalidInput, match="not UTF-8"):
        parse_key("a/b/%ff")


@pytest.mark.parametrize("text", ["a/b/50%", "a/%/c", "a/b/%4", "a/b/%4g", "100%x/b/c"])
def test_a_lone_percent_sign_is_refused_as_over_http(text: str) -> None:
    with pytest.raises(InvalidInput, match="%25"):
        parse_key(text)


def test_any_character_may_be_written_with_percent_signs_in_either_case() -> None:
    assert parse_key("a%2fb/%C3%a9/%41") == PoolKey("a/b", "é", "A")


@given(st.lists(TEXT, min_size=2, max_size=4).map("/".join))
def test_whatever_is_read_as_a_key_is_a_good_one(text: str) -> None:
    try:
        key = parse_key(text)
    except InvalidInput:
        return
    check_key(key)
    assert parse_key(str(key)) == key


def test_the_parts_are_named_as_the_fields() -> None:
    assert PoolKey.__struct_fields__ == KEY_PARTS
    assert len({PoolKey("a", "b", "c"), PoolKey("a", "b", "c")}) == 1
