"""What the operator's commands share: where the service is, the filters, and what they say of an estimated list."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import reduce
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from poolmuster.cli.ending import say
from poolmuster.cli.options import Option, option
from poolmuster.cli.times import duration
from poolmuster.cli.values import URLS
from poolmuster.client import ClientSettings, SourceReport
from poolmuster.client.api import Filters
from poolmuster.client.settings import DEFAULT_URL

F = TypeVar("F", bound=Callable[..., Any])

_FILTERS = {
    "model": "Pools that serve this model, by id or alias.",
    "cluster-id": "Pools of this cluster.",
    "namespace": "Pools of this Kubernetes namespace.",
    "dgd-name": "Pools of this name.",
    "region": "Pools of this region.",
    "label": "Pools with this label, NAME or NAME=VALUE; all that are given must match.",
}


def discovery_options(function: F) -> F:
    """Add the flags that say where the service is and how to talk to it; `client_settings` reads them."""
    return option(
        "--discovery",
        type=URLS,
        default=DEFAULT_URL,
        group="Discovery service",
        help="Base URLs of instances of the discovery service, with commas between them.",
    )(function)


def client_settings(values: dict[str, Any]) -> ClientSettings:
    """Take what `discovery_options` added out of a command's values, as settings of its client."""
    return ClientSettings(urls=values.pop("discovery"))


def filter_options(function: F) -> F:
    """Add the filters of a list; `filters` reads them."""

    def add(decorated: F, item: tuple[str, str]) -> F:
        name, text = item
        return option(f"--{name}", multiple=True, metavar="TEXT", group="Filters (repeatable)", help=text)(decorated)

    return reduce(add, reversed(_FILTERS.items()), function)


def filters(ctx: click.Context, values: dict[str, Any]) -> Filters:
    """Take the filters out of a command's values. Those that came from the environment are told, as they hide pools."""
    found: dict[str, tuple[str, ...]] = {}
    for param in ctx.command.params:
        if isinstance(param, Option) and param.name and param.flag.removeprefix("--") in _FILTERS:
            given = values.pop(param.name)
            if given:
                found[param.name] = given
            if ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
                say(f"poolmuster: filtered by {param.envvar}={' '.join(given)}")
    return cast("Filters", found)


T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's asynchronous part."""
    return asyncio.run(work)


def why_estimated(sources: tuple[SourceReport, ...]) -> str:
    """Why a list is not known to be complete, and when it will be where that is known."""
    stale = [source for source in sources if not source.is_fresh]
    reasons = "; ".join(map(_describe, stale)) or "the service does not say why"
    left_ms = [source.clears_in_ms for source in stale]
    known = [ms for ms in left_ms if ms is not None]
    when = f"; complete in {duration(max(known))}" if known and len(known) == len(left_ms) else ""
    return reasons + when


def _describe(source: SourceReport) -> str:
    why = ": ".join(part for part in (source.reason, source.detail) if part)
    name = None if source.name == source.kind else source.name
    return " ".join(part for part in (source.kind, name, "is", source.state, f"({why})" if why else "") if part)
