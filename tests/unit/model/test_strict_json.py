"""JSON that two readers could understand in two ways is refused, all else is read as it stands."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.errors import InvalidInput
from poolmuster.model.strict_json import NESTING_LIMIT, canonical, decode, escape_pointer

CHARACTERS = st.characters(exclude_categories=["Cs"])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(CHARACTERS, max_size=8),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(CHARACTERS, max_size=4), children, max_size=4)
    ),
    max_leaves=12,
)


def refusal(body: bytes) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as caught:
        decode(body)
    (fault,) = caught.value.field_errors
    return fault.pointer, fault.detail


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_whatever_json_writes_is_read(value: Any, ensure_ascii: bool, indent: int | None) -> None:
    assert decode(json.dumps(value, ensure_ascii=ensure_ascii, indent=indent).encode()) == value


@given(JSON)
def test_the_canonical_form_reads_back_and_stands_still(value: Any) -> None:
    body = canonical(value)
    assert decode(body) == value
    assert canonical(decode(body)) == body


@given(st.dictionaries(st.text(CHARACTERS, max_size=4), JSON, max_size=5), st.randoms(use_true_random=False))
def test_the_canonical_form_does_not_depend_on_the_order_of_members(value: dict[str, Any], random: Any) -> None:
    members = list(value.items())
    random.shuffle(members)
    assert canonical(dict(members)) == canonical(value)


def test_the_canonical_form_is_compact_utf_8_with_members_by_code_point() -> None:
    value = {"b": 1, "\U00010000": 2, "\uffff": 3, "é": [1.5, None], "B": {"z": "\n", "a": "/"}}
    assert canonical(value) == '{"B":{"a":"/","z":"\\n"},"b":1,"é":[1.5,null],"\uffff":3,"\U00010000":2}'.encode()


@pytest.mark.parametrize(
    "body",
    [b'{"a":1,"a":1}', b'[{"b":{"a":1,"a":2}}]', b'{"a":1,"\\u0061":2}', b'{"x":[{"a":{},"b":0,"a":null}]}'],
)
def test_a_member_twice_is_refused_at_any_level(body: bytes) -> None:
    assert refusal(body) == ("", "the member 'a' appears twice in one object")


def test_the_same_member_in_different_objects_is_fine() -> None:
    assert decode(b'{"a":{"a":[{"a":1},{"a":1}]}}') == {"a": {"a": [{"a": 1}, {"a": 1}]}}


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("form", ["%s", "[%s]", '{"a": {"b": %s}}'])
def test_what_is_not_a_number_is_refused(name: str, form: str) -> None:
    assert refusal((form % name).encode()) == ("", f"{name} is not JSON")


@pytest.mark.parametrize("text", ["1e999", "-1e999", "1.0e309", "2e308", "1" + "0" * 400 + ".0"])
def test_a_number_that_no_float_holds_is_refused(text: str) -> None:
    assert "is too large" in refusal(f"[{text}]".encode())[1]


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_may_be_as_long_as_the_largest_float(sign: str) -> None:
    assert decode((sign + "9" * 307).encode()) == int(sign + "9" * 307)
    for digits in (310, 5_000, 200_000):
        assert "is too large" in refusal((sign + "9" * digits).encode())[1]


def test_small_numbers_are_kept() -> None:
    assert decode(b"[0, -0.0, 1e-400, 5e-324, 1.7976931348623157e308]") == [
        0,
        -0.0,
        0.0,
        5e-324,
        1.7976931348623157e308,
    ]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'"\\ud800"', ""),
        (b'["a", "\\udfff"]', "/1"),
        (b'{"a/b": {"~": ["x\\uDbffy"]}}', "/a~1b/~0/0"),
        (b'{"a": {"\\ud800": 1}}', "/a"),
        (b'"\\udc00\\ud800"', ""),
    ],
)
def test_a_lone_surrogate_is_refused_where_it_stands(body: bytes, pointer: str) -> None:
    assert refusal(body) == (pointer, "a lone surrogate is not a character")


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert decode(b'"\\ud83d\\ude00"') == "\U0001f600"
    assert decode(b'["\\\\ud800"]') == ["\\ud800"]
    assert decode(b'{"\\u00e9": [1, null, true, {}, "\\ud83d\\ude00"]}') == {"é": [1, None, True, {}, "\U0001f600"]}


def test_depth_32_is_read_and_33_is_not() -> None:
    assert NESTING_LIMIT == 32
    decode(nested(32))
    decode(b'{"a":' * 32 + b"1" + b"}" * 32)
    detail = "nested more than 32 levels deep"
    assert refusal(nested(33)) == ("", detail)
    assert refusal(b'{"a":' * 33 + b"1" + b"}" * 33) == ("", detail)
    assert refusal(b'[[],{"a":' + nested(31) + b"}]") == ("", detail)


@pytest.mark.parametrize("body", [nested(100_000), b"[" * 100_000, b'{"a":' * 50_000, b'[{"a":' * 60_000])
def test_a_hundred_thousand_brackets_are_refused_like_any_bad_body(body: bytes) -> None:
    assert refusal(body)[1].startswith(("nested more than 32", "not JSON"))


def test_breadth_is_not_depth() -> None:
    assert len(decode(b"[" + b"[]," * 10_000 + b"{}]")) == 10_001
    assert decode(b'"' + b"[{" * 100 + b'"') == "[{" * 100


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"\xef\xbb\xbf{}",
        b"{}{}",
        b"{} x",
        b"{'a':1}",
        b'{"a":1,}',
        b"[1,]",
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"0x1",
        b"nul",
        b'"a\nb"',
        b'"\x00"',
        b'"\\x41"',
        b'"\\u12"',
        b"// hi\n1",
        b'"open',
        b"\x0b1",
        "\u00a01".encode(),
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    pointer, detail = refusal(body)
    assert (pointer, detail.startswith("not JSON at character ")) == ("", True)


@pytest.mark.parametrize(
    "body", [b"\xff", b'"\xc3"', b'"\xed\xa0\x80"', '"é"'.encode("latin-1"), '{"a":1}'.encode("utf-16")]
)
def test_what_is_not_utf_8_is_refused(body: bytes) -> None:
    assert refusal(body)[1].startswith("not UTF-8 at byte ")


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        value = decode(body)
    except InvalidInput as error:
        assert error.field_errors  # noqa: PT017 -- either end is good, and this is what the one owes
    else:
        assert decode(canonical(value)) == value


def test_a_pointer_escapes_its_own_signs() -> None:
    assert escape_pointer("~/~1") == "~0~1~01"
