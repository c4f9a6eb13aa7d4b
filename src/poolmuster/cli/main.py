"""``poolmuster``: one command, whose subcommands are imported only when they are used."""

import os
import sys
from importlib import import_module
from typing import Any

import click

from poolmuster import __version__
from poolmuster.cli.exit_codes import BaseCommand
from poolmuster.cli.options import HELP, HELP_EPILOG, Command, CommandGroup

PROGRAMS = {
    "serve": "Run the discovery service.",
    "relay": "Run beside a pool: find what it serves and register it.",
    "demo": "Try it all on this machine: a service, two model servers, two relays.",
}
OPERATORS = {
    "pools": "List the live pools, once or as they change.",
    "why": "Say why a pool is or is not listed.",
    "status": "Show how each instance of the service is doing.",
    "changes": "Show what changed lately, and why.",
    "register": "Register a pool by hand, for one lease.",
    "deregister": "Take a pool off the list at once.",
    "table": "Create or check the DynamoDB table.",
    "token": "Make bearer tokens.",
}
MODULES = {"deregister": "register"}


class Commands(BaseCommand, click.Group):
    """The subcommands. Each is an object of its name, in the module of that name unless `MODULES` has another."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*PROGRAMS, *OPERATORS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> Command | CommandGroup | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"poolmuster.cli.{MODULES.get(cmd_name, cmd_name)}")
        found: Command | CommandGroup = getattr(module, cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in (("Programs", PROGRAMS), ("Commands", OPERATORS)):
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))

    def all_variables(self) -> set[str]:
        """The environment variables of every command's flags."""
        ctx = click.Context(self)
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        return {variable for found in commands if found is not None for variable in found.variables}


@click.group("poolmuster", cls=Commands, epilog=HELP_EPILOG, context_settings=HELP)
@click.version_option(__version__, prog_name="poolmuster", message="%(prog)s %(version)s")
def cli() -> None:
    """Which model-serving pools are alive right now, what do they serve, and is the list complete?"""


def main() -> Any:
    """The entry point of the console script."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123  # for the life of the process
    return cli.main(prog_name="poolmuster")


if __name__ == "__main__":
    main()
