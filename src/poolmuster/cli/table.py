"""``poolmuster table``: create the DynamoDB table, or check that it is as the service needs it."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from poolmuster.cli.exit_codes import ExitCode, echo_err
from poolmuster.cli.options import Command, CommandGroup, option
from poolmuster.cli.store_options import dynamodb_options, dynamodb_settings
from poolmuster.cli.tables import show_table
from poolmuster.cli.values import REGION
from poolmuster.programs.settings.serve import UsageError

if TYPE_CHECKING:
    from poolmuster.sources.dynamodb.admin import TableAdmin


@click.group("table", cls=CommandGroup)
def table() -> None:
    """Create or check the DynamoDB table."""


@table.command("create", cls=Command)
@dynamodb_options(group="Table")
@option("--replica", "replicas", type=REGION, multiple=True, help="Make it a Global Table, here too. Repeatable.")
@option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def create(ctx: click.Context, /, **flags: Any) -> int:
    """Create the table, or add what it lacks: time to live, replicas. Asks before it changes anything."""
    return _with_table(ctx, flags, lambda admin: _create(ctx, admin, flags["replicas"], yes=flags["yes"]))


def _create(ctx: click.Context, admin: "TableAdmin", replicas: tuple[str, ...], *, yes: bool) -> int:
    _print_identity(admin)
    steps = admin.plan(replicas)
    if not steps:
        click.echo("Nothing to do: the table is there, as it should be.")
        return ExitCode.GOOD
    for step in steps:
        click.echo(f"  - {step.text}")
    if not yes:
        if not on_terminal():
            raise click.UsageError("Standard input is no terminal to ask on. Pass --yes to go on without.", ctx)
        if not click.confirm("Do this?", err=True):
            echo_err("poolmuster: nothing was changed.")
            return ExitCode.FAILED
    for step in steps:
        click.echo(f"{step.text} ...")
        if said := step.make():
            click.echo(f"  {said}")
    click.echo("Done.")
    return ExitCode.GOOD


@table.command("check", cls=Command)
@dynamodb_options(group="Table")
@click.pass_context
def check(ctx: click.Context, /, **flags: Any) -> int:
    """Say whether the table is as the service needs it, and what is missing. Changes nothing."""
    return _with_table(ctx, flags, _check)


def _check(admin: "TableAdmin") -> int:
    _print_identity(admin)
    findings = admin.check()
    show_table(["WHAT", "STATE", "DETAIL"], [(finding.what, finding.state, finding.detail) for finding in findings])
    bad = [finding.what for finding in findings if finding.state == "bad"]
    if bad:
        echo_err(f"poolmuster: the table cannot be used as it is: {', '.join(bad)}")
    return ExitCode.FAILED if bad else ExitCode.GOOD


def on_terminal() -> bool:
    """Whether standard input is a terminal, so that a question can be answered."""
    return sys.stdin.isatty()


def _print_identity(admin: "TableAdmin") -> None:
    click.echo(f"{admin.place}")
    click.echo(f"AWS credentials: {admin.credentials}")


def _with_table(ctx: click.Context, flags: dict[str, Any], work: Callable[["TableAdmin"], int]) -> int:
    where = dynamodb_settings(ctx, flags, mode=f"table {ctx.info_name}")
    # Imported late: the rest of the command line does without, and the extra is not everybody's.
    from poolmuster.programs.stores import StoreConfigError, open_place

    try:
        session, place = open_place(where, f"table {ctx.info_name}")
    except UsageError as error:
        raise click.UsageError(f"{error}.", ctx) from error
    except StoreConfigError as error:
        echo_err(f"poolmuster: {error}")
        return ExitCode.FAILED
    from botocore.exceptions import BotoCoreError, ClientError

    from poolmuster.sources.dynamodb.admin import TableAdmin
    from poolmuster.sources.polled.table import StoreError

    try:
        return work(TableAdmin(session, place))
    except StoreError as trouble:
        echo_err(f"poolmuster: {trouble.reason}: {trouble.detail}")
    except (BotoCoreError, ClientError, OSError, ValueError) as error:
        # botocore's providers let through what opening a file or reading a URL raises.
        echo_err(f"poolmuster: the AWS credentials, or the endpoint, cannot be used: {error}")
    return ExitCode.FAILED
