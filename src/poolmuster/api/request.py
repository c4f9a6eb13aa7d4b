"""Reading a request: its query parameters, strictly, and what its headers accept; and the bounds on requests.

An unknown parameter is refused by name, not ignored.
"""

from functools import lru_cache
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope

from poolmuster.model.errors import FieldError, InvalidInput, UnknownParameter
from poolmuster.model.percent import check_percent_signs
from poolmuster.model.selector import FILTERS, Selector, parse_selector

INCLUDES = ("lease", "unlisted")
QUERY_CACHE_SIZE = 128


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the interface: bytes of a registration's body, streams at once, and those of one credential."""

    body_bytes: int
    streams: int
    streams_per_credential: int


class ListQuery(msgspec.Struct, frozen=True):
    """The query of a list or a watch."""

    selector: Selector
    lease: bool = False
    unlisted: bool = False

    @property
    def digest(self) -> str:
        """F of a watch's ids: equal for equal queries."""
        return self.selector.digest + ("l" if self.lease else "") + ("u" if self.unlisted else "")


def parameters(scope: Scope, *known: str) -> list[tuple[str, str]]:
    """The query's parameters in order. Raises `InvalidInput`, and `UnknownParameter` for any that is not ``known``."""
    return _parse(scope["query_string"], known)


def _parse(query: bytes, known: tuple[str, ...]) -> list[tuple[str, str]]:
    if not query:
        return []
    text = query.decode("ascii")
    check_percent_signs(text, "query")
    try:
        found = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError as error:
        raise InvalidInput(f"The query is malformed: {error}.") from error
    if unknown := sorted({name for name, _ in found} - set(known)):
        faults = tuple(FieldError(name, "is not a parameter of this path") for name in unknown)
        expected = ", ".join(known) if known else "none"
        raise UnknownParameter(f"Unknown parameter: {', '.join(map(repr, unknown))}. Known here: {expected}.", faults)
    return found


def single(found: list[tuple[str, str]], name: str) -> str | None:
    """The value of a parameter that may be given once. Raises `InvalidInput`."""
    values = [value for each, value in found if each == name]
    if len(values) > 1:
        raise InvalidInput("A parameter is given twice.", (FieldError(name, "may be given once"),))
    return values[0] if values else None


def list_query(scope: Scope) -> ListQuery:
    """The query of ``GET /pools`` or ``GET /pools/watch``. Raises `InvalidInput`."""
    return _list_query(scope["query_string"])


@lru_cache(QUERY_CACHE_SIZE)
def _list_query(query: bytes) -> ListQuery:
    # Cached, as clients repeat their queries: a list without a filter costs 8 us less. Errors are not cached.
    found = _parse(query, (*FILTERS, "include"))
    includes = {value for name, value in found if name == "include"}
    if includes - set(INCLUDES):
        raise InvalidInput("An include is not known.", (FieldError("include", f"is one of {', '.join(INCLUDES)}"),))
    selector = parse_selector((name, value) for name, value in found if name != "include")
    return ListQuery(selector, lease="lease" in includes, unlisted="unlisted" in includes)


def header(scope: Scope, name: bytes) -> str:
    """A header's value, several joined by commas; empty where it is missing."""
    return ", ".join(value.decode("latin-1") for each, value in scope["headers"] if each == name)


def _weights(text: str) -> dict[str, float]:
    """The tokens of ``text`` with their ``q``: 1 where there is none, 0 where it is no number."""
    weights = {}
    for item in text.lower().split(","):
        token, *rest = (part.strip() for part in item.split(";"))
        weights[token] = 1.0
        for name, _, value in (part.partition("=") for part in rest):
            if name.strip() == "q":
                try:
                    weights[token] = float(value)
                except ValueError:
                    weights[token] = 0.0
    return weights


def accepts_gzip(scope: Scope) -> bool:
    """Whether the response may be gzipped."""
    weights = _weights(header(scope, b"accept-encoding"))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def preferred(scope: Scope, offered: tuple[str, ...]) -> str | None:
    """The media type of ``offered`` with the highest weight, the earlier of equals; ``None`` if none is accepted."""
    text = header(scope, b"accept")
    if not text.strip():
        return offered[0]
    weights = _weights(text)

    def weight(media_type: str) -> float:
        group = media_type.partition("/")[0] + "/*"
        return next((weights[each] for each in (media_type, group, "*/*") if each in weights), 0.0)

    best = max(offered, key=weight)
    return best if weight(best) > 0 else None


def etag_matches(scope: Scope, etag: bytes) -> bool:
    """Whether ``If-None-Match`` names ``etag``, compared weakly."""
    text = header(scope, b"if-none-match")
    if not text:
        return False
    wanted = etag.decode().removeprefix("W/")
    return any(each.strip() == "*" or each.strip().removeprefix("W/") == wanted for each in text.split(","))


async def until_disconnect(receive: Receive) -> None:
    """Returns when the client disconnects; a body that it still sends is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass
