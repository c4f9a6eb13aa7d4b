"""The flags that say where the service is and how to talk to it, the filters of a list, and how commands call it."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from poolmuster.cli.exit_codes import echo_err
from poolmuster.cli.options import FILE, Option, fail_usage, option, options, refuse_foreign
from poolmuster.cli.text import duration
from poolmuster.cli.values import URLS
from poolmuster.client import AsyncClient, ClientSettings, SourceReport
from poolmuster.client.api import Filters
from poolmuster.client.credentials import CredentialFiles, UnusableFile
from poolmuster.client.credentials import log as client_log
from poolmuster.client.settings import DEFAULT_URL

T = TypeVar("T")

DISCOVERY = "Discovery service"
_TOKEN = re.compile(r"pmt_.*|ey[\w-]+\.[\w-]+\.[\w-]+")
_FILES = {
    "token_file": "File with the bearer token to send, read again on change.",
    "ca_cert": "File of certificates (PEM) to trust, instead of the system's, read again on change.",
    "client_cert": "File with the certificate (PEM) to present, and its key unless --client-key has it; likewise.",
    "client_key": "File with the key of that certificate (PEM), read again on change.",
}
_FILTERS = {
    "model": "Pools that serve this model, by id or alias.",
    "cluster_id": "Pools of this cluster.",
    "namespace": "Pools of this Kubernetes namespace.",
    "dgd_name": "Pools of this name.",
    "region": "Pools of this region.",
    "label": "Pools with this label, NAME or NAME=VALUE; all that are given must match.",
}


def _flag(setting: str) -> str:
    return "--" + setting.replace("_", "-")


discovery_options = options(
    option(
        "--discovery",
        type=URLS,
        default=DEFAULT_URL,
        group=DISCOVERY,
        help="Base URLs of instances of the discovery service, with commas between them.",
    ),
    *(option(_flag(setting), type=FILE, group=DISCOVERY, help=text) for setting, text in _FILES.items()),
)
"""Add the flags that say where the service is and how to talk to it; `client_settings` reads them."""

filter_options = options(
    *(
        option(_flag(name), multiple=True, metavar="TEXT", group="Filters (repeatable)", help=text)
        for name, text in _FILTERS.items()
    )
)
"""Add the filters of a list; `filters` reads them."""


def client_settings(ctx: click.Context, values: dict[str, Any]) -> ClientSettings:
    """Remove from a command's values those of `discovery_options`, and return them as settings of its client.

    Stops with exit code 2 where a file cannot be used now.
    """
    files = {setting: values.pop(setting) for setting in _FILES}
    if _TOKEN.fullmatch(files["token_file"] or ""):
        problem = "this is a token, and a file that holds it is needed. It has been on a command line now: replace it."
        fail_usage(ctx, "--token-file", problem)
    if files["client_cert"] is None:
        refuse_foreign(ctx, "--client-cert", ["--client-key"])
    settings = ClientSettings(urls=values.pop("discovery"), **files)
    try:
        CredentialFiles(settings)
    except UnusableFile as error:
        fail_usage(ctx, _flag(error.setting), error.detail)
    return settings


def filters(ctx: click.Context, values: dict[str, Any]) -> Filters:
    """Remove the filters from a command's values. Those from the environment are printed, as they hide pools."""
    found = {name: given for name in _FILTERS if (given := values.pop(name))}
    for param in ctx.command.params:
        if param.name in found and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
            assert isinstance(param, Option)
            echo_err(f"poolmuster: filtered by {param.envvar}={' '.join(found[param.name])}")
    return cast("Filters", found)


class _WarningPrinter(logging.Handler):
    """Prints the log records of the client as lines for people."""

    def emit(self, record: logging.LogRecord) -> None:
        echo_err(f"poolmuster: {record.getMessage()}")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's asynchronous part. Warnings of the client are printed on standard error."""
    printer = _WarningPrinter(logging.WARNING)
    client_log.addHandler(printer)
    try:
        return asyncio.run(work)
    finally:
        client_log.removeHandler(printer)


def call(settings: ClientSettings, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """The result of ``question``, which calls the client of ``settings``."""

    async def ask() -> T:
        async with AsyncClient(settings) as client:
            return await question(client)

    return run(ask())


def why_estimated(sources: tuple[SourceReport, ...]) -> str:
    """Why a list is not known to be complete, and when it will be, where that is known."""
    reasons = "; ".join(_describe(source) for source in sources if not source.is_fresh)
    left = complete_in(sources)
    return (reasons or "the service does not say why") + (f"; {left}" if left else "")


def complete_in(sources: tuple[SourceReport, ...]) -> str:
    """When an incomplete list will be complete, in words; empty where that is not known."""
    left_ms = [source.clears_in_ms for source in sources if not source.is_fresh]
    known = [ms for ms in left_ms if ms is not None]
    return f"complete in {duration(max(known))}" if known and len(known) == len(left_ms) else ""


def _describe(source: SourceReport) -> str:
    why = ": ".join(part for part in (source.reason, source.detail) if part)
    name = None if source.name == source.kind else source.name
    return " ".join(part for part in (source.kind, name, "is", source.state, f"({why})" if why else "") if part)
