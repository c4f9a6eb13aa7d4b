"""``poolmuster deregister``: take a pool off the list at once."""

from typing import Any

import click

from poolmuster.cli.escape import key_text
from poolmuster.cli.options import command as make_command
from poolmuster.cli.options import option
from poolmuster.cli.service_options import client_settings, discovery_options, run
from poolmuster.cli.values import KEY
from poolmuster.client import AsyncClient, ClientSettings
from poolmuster.model.change import DeregistrationReason
from poolmuster.model.key import PoolKey


@make_command("deregister", help="Take a pool off the list at once.")
@click.argument("key", type=KEY, metavar="CLUSTER/NAMESPACE/NAME")
@option("--relay-id", help="Only while this relay is the latest to have registered it.")
@option(
    "--reason",
    type=click.Choice([reason.value for reason in DeregistrationReason]),
    default=DeregistrationReason.OPERATOR.value,
    help="Why it leaves.",
)
@option("--detail", help="More about why, for people.")
@discovery_options
@click.pass_context
def command(ctx: click.Context, /, key: PoolKey, **values: Any) -> None:
    """A relay that still runs registers its pool again with its next heartbeat."""
    settings = client_settings(ctx, values)
    run(_deregister(settings, key, values))
    whose = f", if {values['relay_id']!r} was the latest to register it" if values["relay_id"] else ""
    click.echo(f"{key_text(key)}: off the list{whose}")


async def _deregister(settings: ClientSettings, key: PoolKey, values: dict[str, Any]) -> None:
    async with AsyncClient(settings) as client:
        await client.deregister(key, relay_id=values["relay_id"], reason=values["reason"], detail=values["detail"])
