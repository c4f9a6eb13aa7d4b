"""``poolmuster pools``: the live pools, once or as they change."""

from typing import Any

import click

from poolmuster.cli.exit_codes import ExitCode, echo_err
from poolmuster.cli.options import command, option
from poolmuster.cli.service_options import (
    call,
    client_settings,
    discovery_options,
    filter_options,
    filters,
    run,
    why_estimated,
)
from poolmuster.cli.tables import key_of_pool, pool_table, show_json, show_table


@command("pools", help="List the live pools, once or as they change.")
@option("-o", "--output", type=click.Choice(["table", "wide", "json", "name"]), default="table", help="What to print.")
@option("-w", "--watch", is_flag=True, help="Keep on: redraw, or print each change as it comes.")
@option("--require-complete", is_flag=True, help="End with 3 if the list is not known to be complete.")
@filter_options
@discovery_options
@click.pass_context
def pools(ctx: click.Context, /, **values: Any) -> int:
    output: str = values["output"]
    if values["watch"] and values["require_complete"]:
        raise click.UsageError("--require-complete is about one list; it does not go with --watch.", ctx)
    if values["watch"] and output == "name":
        raise click.UsageError("--watch works with --output table, wide and json.", ctx)
    settings, chosen = client_settings(ctx, values), filters(ctx, values)
    if values["watch"]:
        from poolmuster.cli.watch_view import watch  # drawing is not needed for one list

        run(watch(settings, chosen, output))
        return ExitCode.GOOD
    listing = call(settings, lambda client: client.list(**chosen))
    if output == "json":
        show_json(listing.body)
    elif output == "name":
        for pool in listing.pools:
            click.echo(key_of_pool(pool))
    else:
        show_table(*pool_table(listing.pools, wide=output == "wide"))
    if not listing.complete:
        echo_err(f"poolmuster: the list is estimated, it may lack live pools: {why_estimated(listing.sources)}.")
    return ExitCode.INCOMPLETE if values["require_complete"] and not listing.complete else ExitCode.GOOD
