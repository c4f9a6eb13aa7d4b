"""``poolmuster relay``: the flags of the relay."""

from typing import Any

import click

from poolmuster.cli.exit_codes import describe, echo_err
from poolmuster.cli.options import FILE, command, fail_usage, flags_in, option, refuse_foreign
from poolmuster.cli.program_options import listen_options, listen_settings, logging_options, run_program
from poolmuster.cli.service_options import DISCOVERY, client_settings, discovery_options
from poolmuster.cli.values import ALIAS, LABEL, POSITIVE_SECONDS, URL
from poolmuster.model.address import Address
from poolmuster.model.errors import InvalidInput
from poolmuster.programs.settings.listen import ListenSettings
from poolmuster.relay.pools_file import PoolEntry, pool_settings
from poolmuster.relay.settings import (
    DEFAULT_HEALTH_PATH,
    OnExit,
    PoolDefaults,
    PoolSettings,
    ProbeSettings,
    RelaySettings,
    pod_namespace,
    validate_health_path,
)

ONE_POOL, EVERY_POOL, PROBES, ITSELF = "One pool", "Every pool", "Probes", "The relay itself"


@command("relay")
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
def relay(ctx: click.Context, /, **flags: Any) -> int:
    """Run beside a pool: find what it serves and register it.

    Registers the pool while its server is healthy and serves a model, again at every heartbeat. It goes on through any
    outage of the server or of discovery.
    """
    client = client_settings(ctx, flags)
    settings = settings_of(ctx, flags, client.urls)
    listen = listen_settings(ctx, flags)

    def program() -> None:
        from poolmuster.programs.relay import relay as run  # late, as in `run_program`

        try:
            run(settings, listen, client)
        except InvalidInput as error:
            raise click.UsageError(describe(error), ctx) from error

    return run_program(ctx, flags, program)


def settings_of(ctx: click.Context, flags: dict[str, Any], discovery: tuple[str, ...]) -> RelaySettings:
    """The flags as settings. Raises `click.UsageError`."""
    if (fault := validate_health_path(flags["health_path"])) is not None:
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
        refuse_foreign(ctx, "one pool, without --pools", flags_in(ctx, ONE_POOL))
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
    aliases: dict[str, list[str]] = {}
    for model_id, alias in flags["model_alias"]:
        aliases.setdefault(model_id, []).append(alias)
    names = ("name", "frontend", "advertise_url", "weight", "frontend_token_file", "frontend_ca_cert")
    entry = PoolEntry(**{name: flags[name] for name in names}, aliases=aliases)
    for member, root in entry.shortened:
        flag = "--" + member.replace("_", "-")
        echo_err(f"poolmuster relay: the /v1 at the end of {flag} is taken off: {root} is used.")
    try:
        return pool_settings(entry, defaults, discovery)
    except InvalidInput as error:
        fault = error.field_errors[0]
        member = fault.pointer.removeprefix("/").replace("dgd_name", "name") or "name"
        detail = fault.detail.replace("advertise_url", "--advertise-url")
        fail_usage(ctx, "--" + member.replace("_", "-"), f"{detail}.")
