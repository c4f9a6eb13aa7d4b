"""``poolmuster status``: a row for each instance."""

import asyncio
import json
from typing import Any

import click
import msgspec

from poolmuster.cli.exit_codes import ExitCode, describe, echo_err
from poolmuster.cli.options import command, option
from poolmuster.cli.service_options import call, client_settings, discovery_options, why_estimated
from poolmuster.cli.tables import show_json, show_table
from poolmuster.cli.text import duration, key_text
from poolmuster.client import AsyncClient, DiscoveryApi, Document
from poolmuster.client.responses import key_of, objects_in, read_sources
from poolmuster.model.errors import PoolmusterError

COLUMNS = ("INSTANCE", "STATE", "POOLS", "STORE", "LEASE", "WATCHERS", "CONFLICTS", "UPTIME", "VERSION", "REVISION")


class _Report(msgspec.Struct, frozen=True):
    """The status of one instance, or why there is none."""

    url: str
    status: Document
    error: PoolmusterError | None = None


@command("status", help="Show how each instance of the service is doing.")
@option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="What to print.")
@discovery_options
@click.pass_context
def status(ctx: click.Context, /, **values: Any) -> int:
    reports = call(client_settings(ctx, values), _ask_all)
    if values["output"] == "json":
        for report in reports:
            error = None if report.error is None else describe(report.error)
            line = {"url": report.url, "status": report.status or None, "error": error}
            show_json(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode())
    else:
        show_table(COLUMNS, map(_row, reports))
    for report in reports:
        _explain(report)
    return ExitCode.FAILED if any(report.error for report in reports) else ExitCode.GOOD


async def _ask_all(client: AsyncClient) -> list[_Report]:
    return await asyncio.gather(*map(_ask, client.apis))


async def _ask(api: DiscoveryApi) -> _Report:
    try:
        return _Report(api.url, (await api.status()).document)
    except PoolmusterError as error:
        return _Report(api.url, {}, error)


def _row(report: _Report) -> list[str]:
    if report.error is not None:
        return [report.url, "unreachable" if report.error.status == 503 else "failed", *[""] * (len(COLUMNS) - 2)]
    status = report.status
    instance = status.get("instance")
    instance = instance if isinstance(instance, dict) else {}
    state = "complete" if status.get("complete") is True else "estimated"
    return [
        report.url,
        "stopping" if instance.get("stopping") is True else state,
        _count(status.get("pools")),
        str(status.get("registration_storage", "")),
        _length(status.get("lease_ms")),
        _count(status.get("watchers")),
        str(len(objects_in(status.get("conflicts")))),
        _length(instance.get("uptime_ms")),
        str(instance.get("version", "")),
        str(status.get("revision", "")),
    ]


def _explain(report: _Report) -> None:
    if report.error is not None:
        echo_err(f"poolmuster: {describe(report.error)}")
        return
    if report.status.get("complete") is not True:
        why = why_estimated(read_sources(report.status.get("sources")))
        echo_err(f"poolmuster: the list of {report.url} is estimated: {why}.")
    for conflict in objects_in(report.status.get("conflicts")):
        key, relays = key_of(conflict.get("key")), conflict.get("relay_ids")
        names = ", ".join(map(str, relays)) if isinstance(relays, list) else "several relays"
        echo_err(f"poolmuster: conflict: {key_text(key) if key else 'a pool'} is registered in turn by {names}.")


def _count(value: Any) -> str:
    return str(value) if isinstance(value, int) else ""


def _length(value: Any) -> str:
    return duration(value) if isinstance(value, int | float) else ""
