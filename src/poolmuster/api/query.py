"""Query parameters, strictly: an unknown one is refused by name, not ignored."""

from functools import lru_cache
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Scope

from poolmuster.model.errors import FieldError, InvalidInput, UnknownParameter
from poolmuster.model.percent import check_percent_signs
from poolmuster.model.selector import FILTERS, Selector, parse_selector

INCLUDES = ("lease", "unlisted")
QUERIES_REMEMBERED = 128


class ListQuery(msgspec.Struct, frozen=True):
    """What a list or a watch asks for."""

    selector: Selector
    lease: bool = False
    unlisted: bool = False

    @property
    def digest(self) -> str:
        """F of a watch's ids: equal for equal questions."""
        return self.selector.digest + ("l" if self.lease else "") + ("u" if self.unlisted else "")


def parameters(scope: Scope) -> list[tuple[str, str]]:
    """The query's parameters in order. Raises `InvalidInput`."""
    return _parse(scope["query_string"])


def _parse(query: bytes) -> list[tuple[str, str]]:
    if not query:
        return []
    text = query.decode("ascii")
    check_percent_signs(text, "query")
    try:
        return parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError as error:
        raise InvalidInput(f"The query is malformed: {error}.") from error


def check_known(found: list[tuple[str, str]], known: tuple[str, ...]) -> None:
    """Raise `UnknownParameter` unless every parameter is known."""
    unknown = sorted({name for name, _ in found} - set(known))
    if unknown:
        faults = tuple(FieldError(name, "is not a parameter of this path") for name in unknown)
        expected = ", ".join(known) if known else "none"
        raise UnknownParameter(f"Unknown parameter: {', '.join(map(repr, unknown))}. Known here: {expected}.", faults)


def single(found: list[tuple[str, str]], name: str) -> str | None:
    """The value of a parameter that may be given once. Raises `InvalidInput`."""
    values = [value for each, value in found if each == name]
    if len(values) > 1:
        raise InvalidInput("A parameter is given twice.", (FieldError(name, "may be given once"),))
    return values[0] if values else None


def list_query(scope: Scope) -> ListQuery:
    """The question of ``GET /pools`` or ``GET /pools/watch``. Raises `InvalidInput`."""
    return _list_query(scope["query_string"])


@lru_cache(QUERIES_REMEMBERED)
def _list_query(query: bytes) -> ListQuery:
    # Clients ask the same again and again; an error is not remembered. A list without a filter costs 8 us less.
    found = _parse(query)
    check_known(found, (*FILTERS, "include"))
    includes = {value for name, value in found if name == "include"}
    if includes - set(INCLUDES):
        raise InvalidInput("An include is not known.", (FieldError("include", f"is one of {', '.join(INCLUDES)}"),))
    selector = parse_selector((name, value) for name, value in found if name != "include")
    return ListQuery(selector, lease="lease" in includes, unlisted="unlisted" in includes)
