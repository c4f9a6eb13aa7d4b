"""The kinds of values that flags take, each read into something typed and checked."""

import math
from typing import TYPE_CHECKING, Any

import click

from poolmuster.cli.exit_codes import describe
from poolmuster.model.address import Address, parse_address
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey, parse_key
from poolmuster.model.registration import redact_url, validate_url

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # the older versions of click that we allow cannot be subscripted


class AddressType(_Type):
    """``HOST:PORT`` (`poolmuster.model.address.Address`)."""

    name = "addr"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, Address):
            return value
        try:
            return parse_address(value)
        except InvalidInput as error:
            self.fail(error.detail, param, ctx)


class SecondsType(_Type):
    """A length of time in seconds, as a finite float within bounds."""

    name = "seconds"

    def __init__(
        self, *, above: float | None = None, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        self.above = above
        self.at_least = at_least
        self.at_most = at_most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a length of time.", param, ctx)
        if self.above is not None and seconds <= self.above:
            self.fail(f"{value} is too short: it must be above {self.above:g} seconds.", param, ctx)
        if self.at_least is not None and seconds < self.at_least:
            self.fail(f"{value} is too short: it must be at least {self.at_least:g} seconds.", param, ctx)
        if self.at_most is not None and seconds > self.at_most:
            self.fail(f"{value} is too long: it must be at most {self.at_most:g} seconds.", param, ctx)
        return seconds


class UrlType(_Type):
    """One ``http`` or ``https`` URL, without a slash at its end."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        if (fault := validate_url(text)) is not None:
            self.fail(f"{redact_url(text)!r} {fault}.", param, ctx)
        return text.rstrip("/")


class UrlListType(_Type):
    """URLs of one kind of program, separated by commas or white space; repeats count once, the order stays."""

    name = "url[,url...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        urls = dict.fromkeys(URL.convert(text, param, ctx) for text in value.replace(",", " ").split())
        if not urls:
            self.fail("at least one URL is needed.", param, ctx)
        return tuple(urls)


class KeyType(_Type):
    """A pool key, ``cluster/namespace/name``."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PoolKey:
        if isinstance(value, PoolKey):
            return value
        try:
            return parse_key(value)
        except InvalidInput as error:
            self.fail(describe(error), param, ctx)


class PairType(_Type):
    """``NAME=VALUE`` as a pair; neither the name nor, unless allowed, the value may be empty."""

    def __init__(self, left: str = "name", right: str = "value", *, empty_value: bool = False) -> None:
        self.name = f"{left}={right}"
        self.empty_value = empty_value

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value[0], value[1]
        left, sign, right = value.partition("=")
        if not left or not sign or (not right and not self.empty_value):
            self.fail(f"{value!r} does not have the form {self.name.upper()}.", param, ctx)
        return left, right


ADDRESS = AddressType()
POSITIVE_SECONDS = SecondsType(above=0)
SECONDS = SecondsType(at_least=0)
URL = UrlType()
URLS = UrlListType()
KEY = KeyType()
LABEL = PairType("k", "v", empty_value=True)
