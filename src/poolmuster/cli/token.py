"""``poolmuster token``: make bearer tokens."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from poolmuster.auth.credentials_file import credentials_line, digest_of, new_token, parse_credentials
from poolmuster.cli.exit_codes import ExitCode, describe, echo_err
from poolmuster.cli.options import FILE, Command, CommandGroup, fail_usage, option
from poolmuster.model.auth import Role
from poolmuster.model.errors import InvalidInput

WHO, WHERE = "Who it is for", "Where it goes"


@click.group("token", cls=CommandGroup)
def token() -> None:
    """Make bearer tokens."""


@token.command("create", cls=Command)
@option("--name", required=True, group=WHO, help="Name of its holder, as the log shows it.")
@option(
    "--role",
    "roles",
    type=click.Choice([role.value for role in Role]),
    multiple=True,
    required=True,
    group=WHO,
    help="What it may do. Repeatable.",
)
@option(
    "--cluster",
    "clusters",
    multiple=True,
    group=WHO,
    help="Cluster ids it may register, as 'eu-*' or '*', in quotes. Repeatable.",
)
@option("--days", type=click.IntRange(1, 36_500), group=WHO, help="It counts for so many days; else until taken out.")
@option(
    "--token-out", type=FILE, group=WHERE, help="Write the token to a new file (mode 600), and print only the line."
)
@click.pass_context
def create(ctx: click.Context, /, **flags: Any) -> int:
    """Make a token: prints it, once, and then its line for the file that --auth-tokens names.

    The line holds the token's SHA-256 and not the token.
    """
    if "register" in flags["roles"] and not flags["clusters"]:
        fail_usage(ctx, "--role", "register needs --cluster, such as --cluster 'eu-*'; '*' is all.")
    if flags["clusters"] and "register" not in flags["roles"]:
        fail_usage(ctx, "--cluster", "it goes only with --role register.")
    secret = new_token()
    expires = datetime.now(UTC) + timedelta(days=flags["days"]) if flags["days"] else None
    line = credentials_line(
        flags["name"],
        sha256=digest_of(secret.encode()).hex(),
        roles=tuple(dict.fromkeys(flags["roles"])),
        clusters=flags["clusters"],
        expires=expires,
    )
    try:
        parse_credentials(line.encode())
    except InvalidInput as error:
        raise click.UsageError(describe(error), ctx) from error
    if flags["token_out"] is None:
        click.echo(secret)
        echo_err("poolmuster: the first line is the token, which is not shown again; the second goes into the file.")
    else:
        _save(ctx, flags["token_out"], secret)
    click.echo(line)
    return ExitCode.GOOD


def _save(ctx: click.Context, path: str, token: str) -> None:
    """Write a new file only: an old one may hold a token in use."""
    try:
        with open(path, "x", encoding="ascii", opener=_for_its_owner) as file:  # a Path takes no opener
            file.write(token + "\n")
    except OSError as error:
        fail_usage(ctx, "--token-out", f"{path} cannot be written: {error.strerror}.")


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
