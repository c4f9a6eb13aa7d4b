"""``poolmuster serve``: the flags of the service."""

from typing import Any

import click
import msgspec

from poolmuster.cli.options import command, fail_usage, option, options, refuse_foreign
from poolmuster.cli.program_options import check_settings, listen_options, listen_settings, logging_options, run_program
from poolmuster.cli.store_options import (
    dynamodb_options,
    dynamodb_settings,
    peer_options,
    peer_settings,
    refuse_dynamodb,
    refuse_peers,
)
from poolmuster.cli.values import POSITIVE_SECONDS, SECONDS, pair_type
from poolmuster.model.registration import validate_url
from poolmuster.model.schema import RouterReplica
from poolmuster.programs.settings.serve import ServeLimits, ServeSettings

DEFAULTS = ServeSettings()

_LIMITS = {
    "pools": "Pools listed at once; renewals are never refused.",
    "pools_per_cluster": "Pools of one cluster listed at once.",
    "registrations_bytes": "Bytes of all listed registrations together, in memory.",
    "body_bytes": "Bytes of one request's body.",
    "body_secs": "Seconds for a request's body to arrive.",
    "head_bytes": "Bytes of one request's head.",
    "head_secs": "Seconds for a request's head to arrive.",
    "idle_secs": "Seconds that an idle connection is kept.",
    "send_stall_secs": "Seconds that a client may read nothing of what waits for it.",
    "connections": "Connections at once.",
    "streams": "Watch streams at once.",
    "streams_per_credential": "Watch streams of one credential at once, unless its line says otherwise.",
    "history_changes": "Changes held for watchers to resume from.",
    "history_bytes": "Bytes of these changes together.",
}

ROUTER = pair_type("id", "url")
STORES = click.Choice(["memory", "dynamodb"])
SERVING, MODES, LEASES = "Serving", "Modes", "Leases"
REGISTRATIONS = "With --pool-discovery registrations"

limit_options = options(
    *(
        option(
            "--limit-" + name.replace("_", "-"),
            type=click.IntRange(min=1) if isinstance(default, int) else POSITIVE_SECONDS,
            default=default,
            group="Limits",
            help=_LIMITS[name],
        )
        for name, default in msgspec.structs.asdict(DEFAULTS.limits).items()
    )
)


@command("serve")
@listen_options(
    DEFAULTS.listen,
    group=SERVING,
    # In an image this program is to be reached from outside; a relay beside it, which has the same flag, is not.
    default_variable="POOLMUSTER_SERVE_LISTEN_DEFAULT",
)
@option(
    "--shutdown-delay-secs",
    type=SECONDS,
    default=DEFAULTS.shutdown_delay_s,
    group=SERVING,
    help="After SIGTERM: not ready, but still serving, for this long.",
)
@option(
    "--pool-discovery",
    type=click.Choice(["registrations"]),
    default=DEFAULTS.pool_discovery,
    group=MODES,
    help="What makes a pool listed.",
)
@option(
    "--registration-storage",
    type=STORES,
    default=DEFAULTS.registration_storage,
    group=MODES,
    help="Where registrations are kept; dynamodb needs the extra of that name.",
)
@option(
    "--heartbeat-interval-secs",
    type=POSITIVE_SECONDS,
    default=DEFAULTS.heartbeat_interval_s,
    group=LEASES,
    help="How often relays register again; below the lease.",
)
@option(
    "--lease-duration-secs",
    type=POSITIVE_SECONDS,
    default=DEFAULTS.lease_duration_s,
    group=LEASES,
    help="How long a registration counts without being sent again; at most 86400.",
)
@option(
    "--router",
    "routers",
    type=ROUTER,
    multiple=True,
    group=REGISTRATIONS,
    help="A router replica that relays should know of. Repeatable.",
)
@peer_options()
@dynamodb_options()
@limit_options
@logging_options
@click.pass_context
def serve(ctx: click.Context, /, **flags: Any) -> int:
    """Run the discovery service: take registrations with leases, list and stream the live pools."""
    for router_id, url in flags["routers"]:
        if (fault := validate_url(url)) is not None:
            fail_usage(ctx, "--router", f"the URL of {router_id!r}, {url!r}, {fault}.")
    if flags["registration_storage"] == "dynamodb":
        refuse_peers(ctx)
        dynamodb = dynamodb_settings(ctx, flags)
    else:
        refuse_dynamodb(ctx)
        dynamodb = None
    listen = listen_settings(ctx, flags)
    if listen.auth_tokens is None:
        refuse_foreign(ctx, "--auth-tokens", ["--limit-streams-per-credential"])
    settings = ServeSettings(
        listen=listen,
        pool_discovery=flags["pool_discovery"],
        registration_storage=flags["registration_storage"],
        dynamodb=dynamodb,
        peers=peer_settings(ctx, flags),
        heartbeat_interval_s=flags["heartbeat_interval_secs"],
        lease_duration_s=flags["lease_duration_secs"],
        routers=tuple(RouterReplica(*pair) for pair in flags["routers"]),
        shutdown_delay_s=flags["shutdown_delay_secs"],
        limits=ServeLimits(**{name: flags[f"limit_{name}"] for name in _LIMITS}),
    )
    check_settings(ctx, settings.check)

    def program() -> None:
        from poolmuster.programs.serve import serve as run  # late, as in `run_program`

        run(settings)

    return run_program(ctx, flags, program)
