"""The flags of the stores: where the DynamoDB table is (also of ``table``), and where the other instances are."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from poolmuster.cli.options import FILE, fail_usage, option, options, refuse_foreign
from poolmuster.cli.values import REGION, SERVICE, URL
from poolmuster.programs.settings.serve import DynamoSettings, PeerFlags

F = TypeVar("F", bound=Callable[..., Any])

DYNAMODB, MEMORY = "--registration-storage dynamodb", "--registration-storage memory"
DYNAMODB_FLAGS = ("--dynamodb-table", "--dynamodb-region", "--dynamodb-endpoint-url")
PEER_FLAGS = ("--peer-expect", "--peer-token-file", "--peer-ca-cert")

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}|arn:[^\s]{1,1020}")


def dynamodb_options(*, group: str = f"With {DYNAMODB}") -> Callable[[F], F]:
    """Add the flags, under the heading ``group``; `dynamodb_settings` reads them."""
    region = "Its AWS region; by default what the AWS environment says. Not needed with an endpoint URL."
    return options(
        option("--dynamodb-table", group=group, metavar="NAME", help="The table's name, or its ARN. Required."),
        option("--dynamodb-region", type=REGION, group=group, help=region),
        option("--dynamodb-endpoint-url", type=URL, group=group, help="Base URL of a local DynamoDB."),
    )


def dynamodb_settings(ctx: click.Context, flags: dict[str, Any], *, mode: str = DYNAMODB) -> DynamoSettings:
    """The flags as settings. Stops with exit code 2 where one is missing or wrong; ``mode`` is what needs them."""
    table = flags["dynamodb_table"]
    if table is None:
        raise click.UsageError(f"{mode} needs --dynamodb-table (or POOLMUSTER_DYNAMODB_TABLE).", ctx)
    if _TABLE.fullmatch(table) is None:
        fail_usage(ctx, "--dynamodb-table", f"{table!r} is not a name of 3 to 255 of A-Z a-z 0-9 _ . -, nor an ARN.")
    return DynamoSettings(table=table, region=flags["dynamodb_region"], endpoint_url=flags["dynamodb_endpoint_url"])


def refuse_dynamodb(ctx: click.Context) -> None:
    """Stop with exit code 2 where one of the flags was set and the store is another."""
    refuse_foreign(ctx, DYNAMODB, DYNAMODB_FLAGS)


def peer_options(*, group: str = f"With {MEMORY}") -> Callable[[F], F]:
    """Add the flags, under the heading ``group``; `peer_settings` reads them."""
    service = "Share registrations with the instances behind this name. Port: by default that of --listen. Repeatable."
    expect = "The list is complete only while there are N instances, this one counted."
    authorities = "Authorities to trust for peers' certificates (PEM), instead of the system's; read again on change."
    token = "Bearer token to send to peers; read again on change."  # noqa: S105  # a help text
    return options(
        option("--peer-service", "peer_services", type=SERVICE, multiple=True, group=group, help=service),
        option("--peer-expect", type=click.IntRange(min=1), metavar="N", group=group, help=expect),
        option("--peer-token-file", type=FILE, group=group, help=token),
        option("--peer-ca-cert", type=FILE, group=group, help=authorities),
    )


def peer_settings(ctx: click.Context, flags: dict[str, Any]) -> PeerFlags:
    """The flags as settings. Stops with exit code 2 where one is set that needs another."""
    if not flags["peer_services"]:
        refuse_foreign(ctx, "--peer-service", PEER_FLAGS)
    return PeerFlags(
        services=flags["peer_services"],
        expect=flags["peer_expect"] or 0,
        token_file=flags["peer_token_file"],
        ca_cert=flags["peer_ca_cert"],
    )


def refuse_peers(ctx: click.Context) -> None:
    """Stop with exit code 2 where one of the flags was set and the store is a table, which instances share anyway."""
    refuse_foreign(ctx, MEMORY, ("--peer-service", *PEER_FLAGS))
