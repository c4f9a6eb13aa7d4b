"""``poolmuster changes``: what changed lately, and why."""

from typing import Any

import click

from poolmuster.cli.escape import key_text
from poolmuster.cli.exit_codes import echo_err
from poolmuster.cli.options import command as make_command
from poolmuster.cli.options import option
from poolmuster.cli.service_options import client_settings, discovery_options, filter_options, filters, run
from poolmuster.cli.tables import show_json, show_table
from poolmuster.cli.times import instant
from poolmuster.cli.values import SECONDS
from poolmuster.client import ApiResponse, AsyncClient, ClientSettings, Document
from poolmuster.client.api import Filters
from poolmuster.client.responses import key_of

COLUMNS = ("TIME", "CHANGE", "POOL", "CAUSE", "REASON", "DETAIL")


@make_command("changes", help="Show what changed lately, and why.")
@option("--since", type=SECONDS, help="How far back, in seconds.  [default: the service's, five minutes]")
@option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="What to print.")
@filter_options
@discovery_options
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    settings, chosen = client_settings(ctx, values), filters(ctx, values)
    answer = run(_ask(settings, values["since"], chosen))
    if values["output"] == "json":
        show_json(answer.body)
    else:
        found = answer.document.get("changes")
        changes = [change for change in found if isinstance(change, dict)] if isinstance(found, list) else []
        show_table(COLUMNS, map(_row, changes))
    if answer.document.get("reaches_back") is False:
        known = instant(answer.document.get("known_since_at_ms"))
        echo_err(f"poolmuster: this instance knows the changes since {known} only.")


async def _ask(settings: ClientSettings, since_s: float | None, chosen: Filters) -> ApiResponse:
    async with AsyncClient(settings) as client:
        return await client.changes(since_s, **chosen)


def _row(change: Document) -> list[str]:
    key = key_of(change.get("key"))
    kind = change.get("type")
    if kind == "completeness":
        kind = "complete" if change.get("complete") is True else "estimated"
    texts = (
        kind,
        key_text(key) if key is not None else "",
        *(change.get(name) for name in ("cause", "reason", "detail")),
    )
    return [instant(change.get("at_ms")), *(text if isinstance(text, str) else "" for text in texts)]
