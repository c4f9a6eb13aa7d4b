"""``poolmuster relay``."""

from typing import Any

import click

from poolmuster.cli.exit_codes import ExitCode, describe, echo_err
from poolmuster.cli.listen_options import listen_options, listen_settings
from poolmuster.cli.logging_options import logging_options
from poolmuster.cli.options import command as make_command
from poolmuster.cli.options import fail_usage, option, refuse_foreign
from poolmuster.cli.service_options import client_settings, discovery_options
from poolmuster.cli.values import LABEL, POSITIVE_SECONDS, URL, PairType
from poolmuster.model.address import Address
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey, check_key
from poolmuster.programs.logging import configure_logging
from poolmuster.programs.settings.listen import ListenSettings, UsageError
from poolmuster.relay.addresses import server_root, unreachable_announcement
from poolmuster.relay.pools_file import health_path_fault
from poolmuster.relay.settings import (
    DEFAULT_HEALTH_PATH,
    OnExit,
    PoolDefaults,
    PoolSettings,
    ProbeSettings,
    RelaySettings,
    pod_namespace,
)

ALIAS = PairType("id", "alias")
FILE = click.Path(dir_okay=False)
ONE_POOL = "One pool"
EVERY_POOL = "Every pool"
DISCOVERY = "Discovery service"
PROBES = "Probes"
ITSELF = "The relay itself"

ONE_POOL_FLAGS = (
    "--frontend",
    "--advertise-url",
    "--name",
    "--model-alias",
    "--weight",
    "--frontend-token-file",
    "--frontend-ca-cert",
)


@make_command("relay")
@option("--frontend", type=URL, group=ONE_POOL, help="Base URL of the OpenAI-compatible server to probe.  [needed]")
@option("--advertise-url", type=URL, group=ONE_POOL, help="The URL to register, if others reach the server by another.")
@option("--name", group=ONE_POOL, help="Name of the pool.  [needed]")
@option("--model-alias", type=ALIAS, multiple=True, group=ONE_POOL, help="Another name for a model. Repeatable.")
@option("--weight", type=click.IntRange(min=0), group=ONE_POOL, help="Share of the load; 0 means no new requests.")
@option("--frontend-token-file", type=FILE, group=ONE_POOL, help="Bearer token for probing, read again on change.")
@option("--frontend-ca-cert", type=FILE, group=ONE_POOL, help="Certificates to trust when probing.")
@option("--pools", type=FILE, group="Many pools", help="File that lists pools (TOML), read again on change.")
@option("--cluster-id", group=EVERY_POOL, help="The cluster this runs in.  [needed]")
@option("--namespace", group=EVERY_POOL, help="Kubernetes namespace.  [default: the pod's, else default]")
@option("--region", group=EVERY_POOL, help="Region, as routers are to see it.")
@option("--availability-zone", group=EVERY_POOL, help="Availability zone.")
@option("--label", type=LABEL, multiple=True, group=EVERY_POOL, help="Label K=V. Repeatable; wins over the file.")
@option("--labels-file", type=FILE, group=EVERY_POOL, help="Labels in the downward API's form, read again on change.")
@discovery_options
@option(
    "--on-exit",
    type=click.Choice([each.value for each in OnExit]),
    default=OnExit.DEREGISTER.value,
    group=DISCOVERY,
    help="On SIGTERM deregister, or leave the pool to its lease (for relays that run twice).",
)
@option("--health-path", default=DEFAULT_HEALTH_PATH, group=PROBES, help="Health page; where it is 404 there is none.")
@option("--probe-interval-secs", type=POSITIVE_SECONDS, default=2.0, group=PROBES, help="Time between two probes.")
@option("--probe-timeout-secs", type=POSITIVE_SECONDS, default=3.0, group=PROBES, help="Time for one whole probe.")
@option(
    "--unhealthy-after",
    type=click.IntRange(min=1, max=1000),
    default=2,
    group=PROBES,
    help="Deregister after so many failed probes in a row; one that finds no model is a failed one.",
)
@listen_options(ListenSettings(listen=Address("127.0.0.1", 8081)), group=ITSELF)
@logging_options
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> int:
    """Run beside a pool: find what it serves and register it.

    Registers the pool while its server is healthy and serves a model, and sends that again at every heartbeat.
    Nothing else that is down ends it.
    """
    client = client_settings(ctx, flags)
    settings = settings_of(ctx, flags, client.urls)
    front = listen_settings(ctx, flags)
    configure_logging(flags["log_format"], flags["log_level"])
    # Imported late, so that --help and mistakes do not wait for a web server.
    from poolmuster.programs.listener import CannotListen
    from poolmuster.programs.relay import relay

    try:
        relay(settings, front, client)
    except InvalidInput as error:
        raise click.UsageError(describe(error), ctx) from error
    except UsageError as error:
        raise click.UsageError(f"{error}.", ctx) from error
    except CannotListen as error:
        echo_err(f"poolmuster relay: {error}.")
        return ExitCode.FAILED
    return ExitCode.GOOD


def settings_of(ctx: click.Context, flags: dict[str, Any], discovery: tuple[str, ...]) -> RelaySettings:
    """The flags as settings. Raises `click.UsageError`."""
    if (fault := health_path_fault(flags["health_path"])) is not None:
        fail_usage(ctx, "--health-path", fault)
    defaults = PoolDefaults(
        cluster_id=flags["cluster_id"],
        namespace=flags["namespace"] if flags["namespace"] is not None else pod_namespace(),
        health_path=flags["health_path"],
        region=flags["region"],
        availability_zone=flags["availability_zone"],
        labels=flags["label"],
        labels_file=flags["labels_file"],
    )
    if flags["pools"] is not None:
        refuse_foreign(ctx, "one pool, without --pools", ONE_POOL_FLAGS)
    return RelaySettings(
        discovery=discovery,
        pool=None if flags["pools"] is not None else _one_pool(ctx, flags, defaults, discovery),
        pools_file=flags["pools"],
        defaults=defaults,
        probe=ProbeSettings(
            interval_s=flags["probe_interval_secs"],
            timeout_s=flags["probe_timeout_secs"],
            unhealthy_after=flags["unhealthy_after"],
        ),
        on_exit=OnExit(flags["on_exit"]),
    )


def _one_pool(
    ctx: click.Context, flags: dict[str, Any], defaults: PoolDefaults, discovery: tuple[str, ...]
) -> PoolSettings:
    for flag in ("--frontend", "--cluster-id", "--name"):
        if flags[flag[2:].replace("-", "_")] is None:
            raise click.UsageError(f"{flag} is needed to register one pool, or --pools to register many.", ctx)
    key = PoolKey(flags["cluster_id"], defaults.namespace, flags["name"])
    try:
        check_key(key)
    except InvalidInput as error:
        where = {"/cluster_id": "--cluster-id", "/namespace": "--namespace", "/dgd_name": "--name"}
        fail_usage(ctx, where.get(error.field_errors[0].pointer, "--name"), f"{error.field_errors[0].detail}.")
    frontend_url = _root(flags["frontend"], "--frontend")
    announced = flags["advertise_url"]
    advertise_url = frontend_url if announced is None else _root(announced, "--advertise-url")
    if (elsewhere := unreachable_announcement(advertise_url, discovery)) is not None:
        fail_usage(
            ctx,
            "--frontend" if announced is None else "--advertise-url",
            f"{advertise_url} names this machine only, and would be announced to {elsewhere}, which is elsewhere: "
            "say by --advertise-url how others reach the server.",
        )
    return PoolSettings(
        key=key,
        frontend_url=frontend_url,
        advertise_url=advertise_url,
        health_path=defaults.health_path,
        token_file=flags["frontend_token_file"],
        ca_cert=flags["frontend_ca_cert"],
        region=defaults.region,
        availability_zone=defaults.availability_zone,
        weight=flags["weight"],
        labels=defaults.labels,
        labels_file=defaults.labels_file,
        aliases=flags["model_alias"],
    )


def _root(url: str, flag: str) -> str:
    root, shortened = server_root(url)
    if shortened:
        echo_err(f"poolmuster relay: the /v1 at the end of {flag} is taken off: {root} is used.")
    return root
