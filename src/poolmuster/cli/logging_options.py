"""The flags of every program that runs on: what its log looks like."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from poolmuster.cli.options import option

F = TypeVar("F", bound=Callable[..., Any])

GROUP = "Logging"
_FORMATS = click.Choice(["text", "json"])
_LEVELS = click.Choice(["debug", "info", "warning", "error"])


def logging_options(function: F) -> F:
    """Add ``--log-format`` and ``--log-level``."""
    level = option("--log-level", type=_LEVELS, default="info", group=GROUP, help="The least that is logged.")
    form = option("--log-format", type=_FORMATS, group=GROUP, help="Default: text on a terminal, else json.")
    return form(level(function))
