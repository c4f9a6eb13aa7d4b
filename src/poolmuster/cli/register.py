"""``poolmuster register`` and ``deregister``: one registration by hand for one lease, and the end of one."""

import json
from typing import Any, BinaryIO

import click

from poolmuster.cli.exit_codes import echo_err
from poolmuster.cli.options import command, flags_in, is_set, option, refuse_foreign
from poolmuster.cli.service_options import call, client_settings, discovery_options
from poolmuster.cli.text import duration, instant, key_text, visible
from poolmuster.cli.values import ALIAS, KEY, LABEL, URL
from poolmuster.client import Document
from poolmuster.client.responses import key_of
from poolmuster.model.change import DeregistrationReason
from poolmuster.model.key import PoolKey

BY_FLAGS = "Registration by flags"


@command("register", help="Register a pool by hand, for one lease.")
@option("--file", type=click.File("rb"), help="A registration as JSON; - for standard input.")
@option("--cluster-id", group=BY_FLAGS, help="The pool's cluster.")
@option("--namespace", default="default", group=BY_FLAGS, help="Its Kubernetes namespace.")
@option("--name", group=BY_FLAGS, help="Its name.")
@option("--frontend-url", type=URL, group=BY_FLAGS, help="The base URL of its OpenAI-compatible server.")
@option("--weight", type=click.IntRange(min=0), group=BY_FLAGS, help="Its share of requests; 0 for no new ones.")
@option("--region", group=BY_FLAGS, help="Its region.")
@option("--availability-zone", group=BY_FLAGS, help="Its availability zone.")
@option("--model", "models", multiple=True, group=BY_FLAGS, help="Id of a model it serves; repeatable.")
@option("--model-alias", "aliases", type=ALIAS, multiple=True, group=BY_FLAGS, help="Repeatable.")
@option("--label", "labels", type=LABEL, multiple=True, group=BY_FLAGS, help="A label; repeatable.")
@option("--relay-id", group=BY_FLAGS, help="Id of the relay that registers it.")
@discovery_options
@click.pass_context
def register(ctx: click.Context, /, file: BinaryIO | None, **values: Any) -> None:
    settings = client_settings(ctx, values)
    if file is not None:
        refuse_foreign(ctx, "a registration by flags, without --file", flags_in(ctx, BY_FLAGS))
        body = file.read()
    else:
        body = json.dumps(_document(ctx, values), ensure_ascii=False).encode(errors="surrogatepass")
    registered = call(settings, lambda client: client.register(body))
    lease = registered.lease
    click.echo(
        f"{_name(body)}: lease of {duration(lease.duration_ms)}, ends {instant(lease.ends_at_ms)}, "
        f"register again every {duration(lease.heartbeat_interval_ms)}"
    )
    for router in registered.routers:
        click.echo(visible(f"router {router.id}: {router.url}"))
    if registered.conflict:
        echo_err("poolmuster: warning: another relay registers this pool in turn.")


def _document(ctx: click.Context, values: dict[str, Any]) -> Document:
    for flag in ("--cluster-id", "--name"):
        if not is_set(ctx, flag):
            raise click.UsageError(f"{flag} is needed, or a whole registration as --file.", ctx)
    aliases: dict[str, list[str]] = {model: [] for model in values["models"]}
    for model, alias in values["aliases"]:
        if model not in aliases:
            raise click.UsageError(f"--model-alias is for {model!r}, which no --model names.", ctx)
        aliases[model].append(alias)
    location = {"region": values["region"], "availability_zone": values["availability_zone"]}
    document = {
        "cluster_id": values["cluster_id"],
        "namespace": values["namespace"],
        "dgd_name": values["name"],
        "relay_id": values["relay_id"],
        "frontend_url": values["frontend_url"],
        "weight": values["weight"],
        "location": {name: value for name, value in location.items() if value is not None} or None,
        "models": [{"id": model, "aliases": names} if names else {"id": model} for model, names in aliases.items()]
        or None,
        "labels": dict(values["labels"]) or None,
    }
    return {name: value for name, value in document.items() if value is not None}


def _name(body: bytes) -> str:
    key = key_of(json.loads(body))  # the service has just accepted it
    return "the pool" if key is None else key_text(key)


@command("deregister", help="Take a pool off the list at once.")
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
def deregister(ctx: click.Context, /, key: PoolKey, **values: Any) -> None:
    """A relay that still runs registers its pool again with its next heartbeat."""
    settings = client_settings(ctx, values)
    call(settings, lambda client: client.deregister(key, **values))
    only = f", if {values['relay_id']!r} was the latest to register it" if values["relay_id"] else ""
    click.echo(f"{key_text(key)}: off the list{only}")
