"""``poolmuster changes``: the latest changes, and why."""

from typing import Any

import click

from poolmuster.cli.exit_codes import echo_err
from poolmuster.cli.options import command, option
from poolmuster.cli.service_options import call, client_settings, discovery_options, filter_options, filters
from poolmuster.cli.tables import show_json, show_table
from poolmuster.cli.text import instant, key_text
from poolmuster.cli.values import SECONDS
from poolmuster.client import Document
from poolmuster.client.responses import key_of, objects_in

COLUMNS = ("TIME", "CHANGE", "POOL", "CAUSE", "REASON", "DETAIL")


@command("changes", help="Show what changed lately, and why.")
@option("--since", type=SECONDS, help="How far back, in seconds.  [default: the service's, five minutes]")
@option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="What to print.")
@filter_options
@discovery_options
@click.pass_context
def changes(ctx: click.Context, /, **values: Any) -> None:
    settings, chosen = client_settings(ctx, values), filters(ctx, values)
    answer = call(settings, lambda client: client.changes(values["since"], **chosen))
    if values["output"] == "json":
        show_json(answer.body)
    else:
        show_table(COLUMNS, map(_row, objects_in(answer.document.get("changes"))))
    if answer.document.get("reaches_back") is False:
        known = instant(answer.document.get("known_since_at_ms"))
        echo_err(f"poolmuster: this instance knows the changes since {known} only.")


def _row(change: Document) -> list[str]:
    key = key_of(change.get("key"))
    kind = change.get("type")
    if kind == "completeness":
        kind = "complete" if change.get("complete") is True else "estimated"
    texts = [kind, None if key is None else key_text(key), *map(change.get, ("cause", "reason", "detail"))]
    return [instant(change.get("at_ms")), *(text if isinstance(text, str) else "" for text in texts)]
