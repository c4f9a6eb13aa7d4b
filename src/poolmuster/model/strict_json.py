"""JSON as strictly as a registry needs it: nothing that two readers could understand in two ways.

Refused: duplicate members, ``NaN`` and infinite numbers, lone surrogates, a byte order mark, bytes that are not UTF-8,
and nesting over `NESTING_LIMIT`. The standard library's scanner is used because its pair hook sees duplicates, which
msgspec keeps silent about; it runs once for each new body, as repeated heartbeats are recognised by their bytes.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from poolmuster.model.errors import FieldError, InvalidInput

NESTING_LIMIT = 32
INTEGER_DIGITS_LIMIT = 308
"""Longer integers are refused, as longer floats are infinite: no reader's numbers go further."""


def _refuse(detail: str, pointer: str = "") -> NoReturn:
    raise InvalidInput("The body is not acceptable JSON.", (FieldError(pointer, detail),))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        _refuse(f"the member {name!r} appears twice in one object")
    return members


def _constant(name: str) -> NoReturn:
    _refuse(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        _refuse(f"the number {text[:40]} is too large")
    return number


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > INTEGER_DIGITS_LIMIT:
        _refuse(f"the number {text[:40]}... is too large")
    return int(text)


_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite, parse_int=_integer
)


def decode(body: bytes) -> Any:
    """The value that ``body`` holds. Raises `InvalidInput`."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        _refuse(f"not UTF-8 at byte {error.start}")
    try:
        value = _decoder.decode(text)
    except RecursionError:
        _refuse(f"nested more than {NESTING_LIMIT} levels deep")
    except json.JSONDecodeError as error:
        _refuse(f"not JSON at character {error.pos}: {error.msg}")
    if body.count(b"[") + body.count(b"{") > NESTING_LIMIT and _depth(value) > NESTING_LIMIT:
        _refuse(f"nested more than {NESTING_LIMIT} levels deep")
    if "\\u" in text:
        for pointer, string in _strings(value, ""):
            if any("\ud800" <= char <= "\udfff" for char in string):
                _refuse("a lone surrogate is not a character", pointer)
    return value


def _children(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [child for node in level if isinstance(node, (dict, list)) for child in (None, *_children(node))]:
        depth += 1
    return depth


def _strings(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, dict):
        for name, child in value.items():
            yield pointer, name
            yield from _strings(child, f"{pointer}/{escape_pointer(name)}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _strings(child, f"{pointer}/{index}")


def escape_pointer(name: str) -> str:
    """One reference token of an RFC 6901 pointer."""
    return name.replace("~", "~0").replace("/", "~1")


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def canonical(value: Any) -> bytes:
    """``value`` as compact UTF-8 JSON with members sorted by code point at every level."""
    return _encoder.encode(value).encode()
