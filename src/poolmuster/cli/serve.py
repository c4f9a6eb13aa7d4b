"""``poolmuster serve``: the flags of the service, and the line that says why it cannot start."""

from typing import Any

import click

from poolmuster.cli.dynamodb_options import dynamodb_options, dynamodb_settings, refuse_dynamodb
from poolmuster.cli.exit_codes import ExitCode, echo_err
from poolmuster.cli.listen_options import listen_options, listen_settings
from poolmuster.cli.logging_options import logging_options
from poolmuster.cli.options import command as make_command
from poolmuster.cli.options import fail_usage, option, refuse_foreign
from poolmuster.cli.peer_options import peer_options, peer_settings, refuse_peers
from poolmuster.cli.values import POSITIVE_SECONDS, SECONDS, PairType
from poolmuster.model.registration import validate_url
from poolmuster.model.schema import RouterReplica
from poolmuster.programs.logging import configure_logging
from poolmuster.programs.settings.serve import (
    DynamoSettings,
    ListenSettings,
    PeerFlags,
    ServeLimits,
    ServeSettings,
    UsageError,
)

DEFAULTS = ServeSettings()

_LIMITS = {
    "pools": (int, "Pools listed at once; renewals are never refused."),
    "pools_per_cluster": (int, "Pools of one cluster listed at once."),
    "registrations_bytes": (int, "Bytes of all listed registrations together, in memory."),
    "body_bytes": (int, "Bytes of one request's body."),
    "body_secs": (float, "Seconds for a request's body to arrive."),
    "head_bytes": (int, "Bytes of one request's head."),
    "head_secs": (float, "Seconds for a request's head to arrive."),
    "idle_secs": (float, "Seconds that an idle connection is kept."),
    "send_stall_secs": (float, "Seconds that a client may read nothing of what waits for it."),
    "connections": (int, "Connections at once."),
    "streams": (int, "Watch streams at once."),
    "streams_per_credential": (int, "Watch streams of one credential at once, unless its line says otherwise."),
    "history_changes": (int, "Changes held for watchers to resume from."),
    "history_bytes": (int, "Bytes of these changes together."),
}


ROUTER = PairType("id", "url")
SERVING, MODES, LEASES = "Serving", "Modes", "Leases"
REGISTRATIONS = "With --pool-discovery registrations"


def _limit_options(function: Any) -> Any:
    for name, (kind, text) in reversed(_LIMITS.items()):
        flag = "--limit-" + name.replace("_", "-")
        bounds = click.IntRange(min=1) if kind is int else POSITIVE_SECONDS
        default = getattr(DEFAULTS.limits, name)
        function = option(flag, f"limit_{name}", type=bounds, default=default, group="Limits", help=text)(function)
    return function


@make_command("serve")
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
    type=click.Choice(["memory", "dynamodb"]),
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
@_limit_options
@logging_options
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> int:
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
    front = listen_settings(ctx, flags)
    if front.auth_tokens is None:
        refuse_foreign(ctx, "--auth-tokens", ["--limit-streams-per-credential"])
    settings = settings_of(flags, front, dynamodb, peer_settings(ctx, flags))
    try:
        settings.check()
    except UsageError as error:
        raise click.UsageError(f"{error}.", ctx) from error
    configure_logging(flags["log_format"], flags["log_level"])
    # Imported late: none of this is needed to say what a flag means or why it is wrong.
    from poolmuster.programs.listener import CannotListen
    from poolmuster.programs.serve import serve as run
    from poolmuster.programs.stores import StoreConfigError

    try:
        run(settings)
    except UsageError as error:
        raise click.UsageError(f"{error}.", ctx) from error
    except StoreConfigError as error:
        echo_err(f"poolmuster: {error}")
        return ExitCode.FAILED
    except CannotListen as error:
        echo_err(f"poolmuster: {error}.")
        return ExitCode.FAILED
    return ExitCode.GOOD


def settings_of(
    flags: dict[str, Any],
    front: ListenSettings,
    dynamodb: DynamoSettings | None = None,
    peers: PeerFlags = DEFAULTS.peers,
) -> ServeSettings:
    """The flags as settings, not yet checked against each other."""
    return ServeSettings(
        listen=front,
        pool_discovery=flags["pool_discovery"],
        registration_storage=flags["registration_storage"],
        dynamodb=dynamodb,
        peers=peers,
        heartbeat_interval_s=flags["heartbeat_interval_secs"],
        lease_duration_s=flags["lease_duration_secs"],
        routers=tuple(RouterReplica(*pair) for pair in flags["routers"]),
        shutdown_delay_s=flags["shutdown_delay_secs"],
        limits=ServeLimits(**{name: flags[f"limit_{name}"] for name in _LIMITS}),
    )
