"""What the operator's commands share: where the service is, the filters, and what they say of an estimated list."""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from functools import reduce
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from poolmuster.cli.exit_codes import echo_err
from poolmuster.cli.options import Option, fail_usage, option, refuse_foreign
from poolmuster.cli.times import duration
from poolmuster.cli.values import URLS
from poolmuster.client import ClientSettings, SourceReport
from poolmuster.client.api import Filters
from poolmuster.client.credentials import CredentialFiles, UnusableFile
from poolmuster.client.credentials import log as client_log
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


GROUP = "Discovery service"
_FILE = click.Path(dir_okay=False)
_TOKEN = re.compile(r"pmt_.*|ey[\w-]+\.[\w-]+\.[\w-]+")
_FILES = {
    "--token-file": "File with the bearer token to show, read again on change.",
    "--ca-cert": "File of certificates (PEM) to trust, instead of the system's, read again on change.",
    "--client-cert": "File with the certificate (PEM) to show, and its key unless --client-key has it; likewise.",
    "--client-key": "File with the key of that certificate (PEM), read again on change.",
}


def discovery_options(function: F) -> F:
    """Add the flags that say where the service is and how to talk to it; `client_settings` reads them."""
    for flag, text in reversed(_FILES.items()):
        function = option(flag, type=_FILE, group=GROUP, help=text)(function)
    return option(
        "--discovery",
        type=URLS,
        default=DEFAULT_URL,
        group=GROUP,
        help="Base URLs of instances of the discovery service, with commas between them.",
    )(function)


def client_settings(ctx: click.Context, values: dict[str, Any]) -> ClientSettings:
    """Take what `discovery_options` added out of a command's values, as settings of its client.

    Stops with exit code 2 where a file cannot be used now.
    """
    if _TOKEN.fullmatch(values["token_file"] or ""):
        fail_usage(
            ctx,
            "--token-file",
            "this is a token, and a file that holds it is wanted. It has been on a command line now: replace it.",
        )
    files = {name: values.pop(name) for name in (flag[2:].replace("-", "_") for flag in _FILES)}
    if files["client_cert"] is None:
        refuse_foreign(ctx, "--client-cert", ["--client-key"])
    settings = ClientSettings(urls=values.pop("discovery"), **files)
    try:
        CredentialFiles(settings)
    except UnusableFile as error:
        fail_usage(ctx, f"--{error.setting.replace('_', '-')}", error.detail)
    return settings


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
                echo_err(f"poolmuster: filtered by {param.envvar}={' '.join(given)}")
    return cast("Filters", found)


T = TypeVar("T")


class _Said(logging.Handler):
    """What the client would log, as lines for people."""

    def emit(self, record: logging.LogRecord) -> None:
        echo_err(f"poolmuster: {record.getMessage()}")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's asynchronous part. What the client warns of is said on standard error."""
    said = _Said(logging.WARNING)
    client_log.addHandler(said)
    try:
        return asyncio.run(work)
    finally:
        client_log.removeHandler(said)


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
