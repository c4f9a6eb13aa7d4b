"""The kinds of values that flags take, each parsed into something typed and checked."""

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from poolmuster.cli.exit_codes import describe
from poolmuster.model.address import Address, parse_address
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import parse_key
from poolmuster.model.registration import redact_url, validate_url

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # the older versions of click that we allow cannot be subscripted


class ParsedType(_ParamType):
    """A kind of value that ``parse`` makes from a text. ``parse`` raises `InvalidInput`, whose detail is shown."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default, or a value that was parsed before
            return value
        try:
            return self._parse(value)
        except InvalidInput as error:
            self.fail(describe(error), param, ctx)


def pair_type(left: str, right: str, *, empty_value: bool = False) -> ParsedType:
    """``LEFT=RIGHT`` as a pair; neither the left part nor, unless allowed, the right one may be empty."""
    name = f"{left}={right}"

    def parse(text: str) -> tuple[str, str]:
        before, sign, after = text.partition("=")
        if not before or not sign or (not after and not empty_value):
            raise InvalidInput(f"{text!r} does not have the form {name.upper()}.")
        return before, after

    return ParsedType(name, parse)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a number of seconds.") from None
    if not math.isfinite(seconds):
        raise InvalidInput(f"{text!r} is not a length of time.")
    if seconds < 0:
        raise InvalidInput(f"{text} is too short: it must be at least 0 seconds.")
    return seconds


def _positive_seconds(text: str) -> float:
    seconds = _seconds(text)
    if not seconds:
        raise InvalidInput(f"{text} is too short: it must be above 0 seconds.")
    return seconds


def _url(text: str) -> str:
    text = text.strip()
    if (fault := validate_url(text)) is not None:
        raise InvalidInput(f"{redact_url(text)!r} {fault}.")
    return text.rstrip("/")


def _urls(text: str) -> tuple[str, ...]:
    urls = dict.fromkeys(map(_url, text.replace(",", " ").split()))
    if not urls:
        raise InvalidInput("at least one URL is needed.")
    return tuple(urls)


def _region(text: str) -> str:
    if re.fullmatch(r"[a-z0-9-]{1,63}", text) is None:
        raise InvalidInput(f"{text!r} is not the name of a region, as in eu-west-1.")
    return text


def _service(text: str) -> Address:
    has_port = ":" in text and not text.endswith("]")
    address = parse_address(text if has_port else f"{text}:0")
    if not address.host or address.is_unspecified:
        raise InvalidInput(f"{text!r} names no host that stands for the instances.")
    if has_port and not address.port:
        raise InvalidInput(f"{text!r} has the port 0, to which nothing can connect.")
    return address


ADDRESS = ParsedType("addr", parse_address)
"""``HOST:PORT`` (`poolmuster.model.address.Address`)."""

SECONDS = ParsedType("seconds", _seconds)
"""A length of time in seconds, as a finite float of 0 or more."""

POSITIVE_SECONDS = ParsedType("seconds", _positive_seconds)

URL = ParsedType("url", _url)
"""One ``http`` or ``https`` URL, without a slash at its end."""

URLS = ParsedType("url[,url...]", _urls)
"""URLs separated by commas or white space, in their order and each once."""

KEY = ParsedType("key", parse_key)
"""A pool key, ``cluster/namespace/name``."""

LABEL = pair_type("k", "v", empty_value=True)
ALIAS = pair_type("id", "alias")

REGION = ParsedType("region", _region)
"""The name of an AWS region."""

SERVICE = ParsedType("host[:port]", _service)
"""The name behind which the instances are; without a port, the port of the `Address` is 0."""
