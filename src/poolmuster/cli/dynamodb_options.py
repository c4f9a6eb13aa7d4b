"""The flags that say where the DynamoDB table is, shared by ``serve`` and ``table``."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from poolmuster.cli.options import fail_usage, option, refuse_foreign
from poolmuster.cli.values import URL
from poolmuster.programs.settings.serve import DynamoSettings

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # the older versions of click that we allow cannot be subscripted

F = TypeVar("F", bound=Callable[..., Any])

MODE = "--registration-storage dynamodb"
GROUP = f"With {MODE}"
FLAGS = ("--dynamodb-table", "--dynamodb-region", "--dynamodb-endpoint-url")

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}|arn:[^\s]{1,1020}")
_REGION = re.compile(r"[a-z0-9-]{1,63}")


class RegionType(_Type):
    """The name of an AWS region."""

    name = "region"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _REGION.fullmatch(value) is None:
            self.fail(f"{value!r} is not the name of a region, as in eu-west-1.", param, ctx)
        return str(value)


REGION = RegionType()


def dynamodb_options(*, group: str = GROUP) -> Callable[[F], F]:
    """Add the flags, under the heading ``group``; `dynamodb_settings` reads them."""
    region_help = "Its AWS region; by default what the AWS environment says. Not needed with an endpoint URL."

    def add(function: F) -> F:
        url = option("--dynamodb-endpoint-url", type=URL, group=group, help="Base URL of a local DynamoDB.")
        region = option("--dynamodb-region", type=REGION, group=group, help=region_help)
        table = option("--dynamodb-table", group=group, metavar="NAME", help="The table's name, or its ARN. Required.")
        return table(region(url(function)))

    return add


def dynamodb_settings(ctx: click.Context, flags: dict[str, Any], *, mode: str = MODE) -> DynamoSettings:
    """The flags as settings. Stops with exit code 2 where one is missing or wrong; ``mode`` is what needs them."""
    table = flags["dynamodb_table"]
    if table is None:
        raise click.UsageError(f"{mode} needs --dynamodb-table (or POOLMUSTER_DYNAMODB_TABLE).", ctx)
    if _TABLE.fullmatch(table) is None:
        fail_usage(ctx, "--dynamodb-table", f"{table!r} is not a name of 3 to 255 of A-Z a-z 0-9 _ . -, nor an ARN.")
    return DynamoSettings(table=table, region=flags["dynamodb_region"], endpoint_url=flags["dynamodb_endpoint_url"])


def refuse_dynamodb(ctx: click.Context) -> None:
    """Stop with exit code 2 where one of the flags was set and the store is another."""
    refuse_foreign(ctx, MODE, FLAGS)
