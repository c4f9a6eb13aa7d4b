"""Flags as this project has them, and their environment variables.

Every flag ``--some-flag`` can also be set by the environment variable ``POOLMUSTER_SOME_FLAG``; the flag wins. A flag
that takes one value and is given twice is a mistake, and so is one that belongs to a mode that is not in use: each is
one line and exit code 2. ``--help`` shows flags under headings.

Kubernetes gives every container variables for each Service of its namespace, and those of a Service named
``poolmuster``, or ``poolmuster-`` and more, look like ours. They count as not set.

    @command("serve")
    @option("--listen", type=ADDRESS, default="127.0.0.1:8080", group="Serving", help="Address to serve on.")
    def serve(listen: Address) -> int: ...
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, NoReturn, TypeVar

import click
from click.core import ParameterSource

from poolmuster.cli.exit_codes import BaseCommand, echo_err

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(dir_okay=False)
PREFIX = "POOLMUSTER_"
_INJECTED_VALUE = re.compile(r"(tcp|udp|sctp)://")
_INJECTED_NAME = re.compile(
    r"POOLMUSTER_(?:[A-Z0-9_]+_)?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
HELP = {"help_option_names": ["-h", "--help"]}
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)

HELP_EPILOG = (
    f"Every flag can also be set by an environment variable: --some-flag by {PREFIX}SOME_FLAG, lists separated by "
    "white space. The flag wins. Exit codes: 0 good, 1 failed, 2 usage, 3 incomplete, 130 Ctrl-C."
)


class Option(click.Option):
    """A flag with its environment variable and the heading it stands under in ``--help``.

    ``default_variable`` names a variable that replaces the default and does not count as setting the flag: an image
    has its own.
    """

    def __init__(self, *args: Any, group: str = "Options", default_variable: str | None = None, **attrs: Any) -> None:
        attrs.setdefault("show_default", not attrs.get("is_flag") and attrs.get("default") not in (None, ()))
        super().__init__(*args, **attrs)
        self.group = group
        self.default_variable = default_variable
        self.flag = next((name for name in self.opts if name.startswith("--")), self.opts[0])
        self.envvar: str | None = PREFIX + self.flag.lstrip("-").replace("-", "_").upper()

    def get_default(self, ctx: click.Context, call: bool = True) -> Any:
        value = os.environ.get(self.default_variable or "", "")
        return super().get_default(ctx, call) if _is_unset(value) else value

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        cast = super().type_cast_value(ctx, value)
        if not isinstance(self.type, click.Path | click.File) and _has_undecoded_bytes(cast):
            raise click.BadParameter("is not UTF-8.", ctx=ctx, param=self)
        return cast

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        value = super().resolve_envvar_value(ctx)
        return None if value is None or _is_unset(value) else value

    def value_from_envvar(self, ctx: click.Context) -> Any:
        # Lists are separated by white space whatever their items are; click splits lists of paths at colons.
        if self.multiple:
            value = self.resolve_envvar_value(ctx)
            return None if value is None else value.split()
        return super().value_from_envvar(ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        hint = super().get_error_hint(ctx)
        source = ctx.get_parameter_source(self.name) if ctx and self.name else None
        if source is ParameterSource.ENVIRONMENT:
            return f"{hint} (set by {self.envvar})"
        return f"{hint} (or {self.envvar})" if source is ParameterSource.DEFAULT and self.required else hint


def _has_undecoded_bytes(value: Any) -> bool:
    """Bytes of the command line that are not UTF-8 are lone surrogates here, which nothing on the wire can carry."""
    if isinstance(value, tuple | list):
        return any(map(_has_undecoded_bytes, value))
    return isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value)


class Command(BaseCommand):
    """A command with `Option` flags: no flag twice, headings in ``--help``, a warning of unknown variables."""

    def __init__(self, *args: Any, **attrs: Any) -> None:
        super().__init__(*args, **{"epilog": HELP_EPILOG, "context_settings": HELP, **attrs})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            _, _, order = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # so that the line begins with the command's name
            raise
        for param, times in Counter(order).items():
            if isinstance(param, Option) and times > 1 and not (param.multiple or param.count):
                raise click.UsageError(f"{param.flag} is given {times} times; it takes one value.", ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                groups.setdefault(param.group if isinstance(param, Option) else "Help", []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> Any:
        warn_of_unknown_variables(ctx)
        return super().invoke(ctx)

    @property
    def variables(self) -> set[str]:
        """The environment variables of this command's flags."""
        flags = [param for param in self.params if isinstance(param, Option)]
        return {name for flag in flags for name in (flag.envvar, flag.default_variable) if name}


class CommandGroup(BaseCommand, click.Group):
    """A command that only holds others."""

    def __init__(self, *args: Any, **attrs: Any) -> None:
        super().__init__(*args, **{"context_settings": HELP, **attrs})

    @property
    def variables(self) -> set[str]:
        """The environment variables of all its commands' flags."""
        return {name for found in self.commands.values() if isinstance(found, Command) for name in found.variables}


def command(name: str, **attrs: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a `Command`. It returns its exit code, or ``None`` for 0."""
    return click.command(name, cls=Command, **attrs)


def option(*names: str, group: str = "Options", **attrs: Any) -> Callable[[F], F]:
    """Add a flag. ``group`` is its heading in ``--help``; everything else is as for `click.option`."""
    return click.option(*names, cls=Option, group=group, **attrs)


def options(*added: Callable[[Any], Any]) -> Callable[[F], F]:
    """One decorator for several that add flags, which ``--help`` shows in this order."""
    return lambda function: reduce(lambda decorated, add: add(decorated), reversed(added), function)


def _option(ctx: click.Context, flag: str) -> Option:
    return next(param for param in ctx.command.params if isinstance(param, Option) and flag in param.opts)


def is_set(ctx: click.Context, flag: str) -> bool:
    """Whether ``flag`` (as ``--some-flag``) was set, on the command line or by its variable."""
    return ctx.get_parameter_source(_option(ctx, flag).name or "") in _GIVEN


def flags_in(ctx: click.Context, group: str) -> list[str]:
    """The flags of the command under the heading ``group``."""
    return [param.flag for param in ctx.command.params if isinstance(param, Option) and param.group == group]


def refuse_foreign(ctx: click.Context, mode: str, flags: Iterable[str]) -> None:
    """Stop with exit code 2 if one of ``flags`` was set. Call it when ``mode``, which they belong to, is not in use.

    ``mode`` is what would have to be given, as in ``--registration-storage dynamodb``.
    """
    for flag in flags:
        if is_set(ctx, flag):
            found = _option(ctx, flag)
            by_variable = ctx.get_parameter_source(found.name or "") is ParameterSource.ENVIRONMENT
            where = f" (set by {found.envvar})" if by_variable else ""
            raise click.UsageError(f"{found.flag}{where} works only with {mode}.", ctx)


def fail_usage(ctx: click.Context, flag: str, problem: str) -> NoReturn:
    """Stop with exit code 2 and one line that names ``flag``, and its variable if that set it."""
    raise click.BadParameter(problem, ctx=ctx, param=_option(ctx, flag))


def warn_of_unknown_variables(ctx: click.Context) -> None:
    """Print on standard error, one line each, which ``POOLMUSTER_`` variables belong to no flag of any command."""
    own = ctx.command.variables if isinstance(ctx.command, Command) else set()
    if not (unknown := _unknown_variables(os.environ, own)):
        return
    # Importing every command to learn its flags costs a moment, so it is done only when there is reason to.
    all_variables: Callable[[], set[str]] = getattr(ctx.find_root().command, "all_variables", set)
    known = own | all_variables()
    for name in unknown:
        if name not in known:
            echo_err(f"poolmuster: warning: the environment variable {name} belongs to no flag and has no effect.")


def _is_unset(value: str) -> bool:
    """Whether a variable with this value counts as not set: it is blank, or Kubernetes injected it."""
    return not value.strip() or _INJECTED_VALUE.match(value) is not None


def _unknown_variables(environ: Mapping[str, str], known: set[str]) -> list[str]:
    """The names in ``environ`` that look like ours, but belong to no flag and were not injected; sorted."""
    return sorted(
        name
        for name, value in environ.items()
        if name.startswith(PREFIX)
        and name not in known
        and not _INJECTED_NAME.fullmatch(name)
        and not _INJECTED_VALUE.match(value)
    )
