"""How every command ends: an exit code, and at most one line on standard error with the reason."""

import contextlib
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import click

from poolmuster.cli.text import visible
from poolmuster.model.errors import Forbidden, InvalidInput, PoolmusterError, Unauthenticated

NONE_SHOWN = "Pass --token-file, or --client-cert and --client-key to an https URL."
NOT_ACCEPTED = "What --token-file or --client-cert holds is not known there, or no more: pass what is."
NOT_ENOUGH = "Pass credentials that may, by --token-file or by --client-cert and --client-key."


class ExitCode(IntEnum):
    """The exit codes of all commands. ``INTERRUPTED`` is a shell's for an end by Ctrl-C."""

    GOOD = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERRUPTED = 130


def echo_err(text: str) -> None:
    """One line for people on standard error, with nothing in it that a terminal would act on."""
    click.echo(visible(text), err=True)


def describe(error: PoolmusterError) -> str:
    """An error in one line, with each field that is wrong, or with what would help."""
    if isinstance(error, Unauthenticated):
        return f"{error.detail} {NOT_ACCEPTED if error.presented else NONE_SHOWN}"
    if isinstance(error, Forbidden):
        return f"{error.detail} {NOT_ENOUGH}"
    faults = error.field_errors if isinstance(error, InvalidInput) else ()
    places = (f"{fault.pointer}: {fault.detail}." if fault.pointer else f"({fault.detail})" for fault in faults)
    return " ".join([error.detail, *places])


class BaseCommand(click.Command):
    """A command whose function returns its exit code, ``None`` for 0, and whose errors are one line each."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        sys.exit(self._run(args, prog_name, complete_var, extra))

    def _run(
        self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None, extra: dict[str, Any]
    ) -> int:
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            return ExitCode.USAGE
        except click.UsageError as error:
            echo_err(
                f"{error.ctx.command_path if error.ctx else 'poolmuster'}: {' '.join(error.format_message().split())}"
            )
            return ExitCode.USAGE
        except click.ClickException as error:
            echo_err(f"poolmuster: {error.format_message()}")
            return ExitCode.FAILED
        except PoolmusterError as error:
            echo_err(f"poolmuster: {describe(error)}")
            return ExitCode.FAILED
        except (click.Abort, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        except BrokenPipeError:
            _discard_stdout()
            return ExitCode.FAILED
        except OSError as error:
            _discard_stdout()
            echo_err(f"poolmuster: {error.strerror or error}")
            return ExitCode.FAILED
        return ExitCode.GOOD if code is None else int(code)

    def invoke(self, ctx: click.Context) -> Any:
        # click itself would print a blank line for Ctrl-C, and end with 1 for a reader that went away.
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:
            _discard_stdout()
            raise click.exceptions.Exit(ExitCode.FAILED) from None


def _discard_stdout() -> None:
    """Discard what is still buffered, or the interpreter would report the broken pipe at its end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
