"""The command with subcommands, and how every command ends."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from poolmuster import __version__
from poolmuster.cli.main import OPERATORS, PROGRAMS, cli
from poolmuster.cli.options import Command, CommandGroup, command
from poolmuster.model.errors import FieldError, InvalidInput


def test_version() -> None:
    result = CliRunner().invoke(cli, ["--version"], prog_name="poolmuster")
    assert (result.exit_code, result.stdout) == (0, f"poolmuster {__version__}\n")


def test_no_command_shows_the_help_and_is_a_usage_mistake() -> None:
    result = CliRunner().invoke(cli, [], prog_name="poolmuster")
    assert result.exit_code == 2
    assert "Usage: poolmuster" in result.stderr


def test_an_unknown_command_is_one_line() -> None:
    result = CliRunner().invoke(cli, ["lst"], prog_name="poolmuster")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "'lst'" in result.stderr


def test_the_help_of_all_commands_imports_none_of_them() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom poolmuster.cli.main import cli\n"
        "CliRunner().invoke(cli, ['--help'])\n"
        "print(sorted(name for name in sys.modules if name in ('aiohttp', 'starlette', 'uvicorn', 'rich')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", [*PROGRAMS, *OPERATORS])
def test_each_command_is_ours_and_described_as_it_does_itself(name: str) -> None:
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, Command | CommandGroup)
    assert found.name == name
    if name in OPERATORS:
        assert found.help == OPERATORS[name]


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidInput("No good.", (FieldError("/a", "is bad"),)), 1, "poolmuster: No good. /a: is bad.\n"),
        (click.ClickException("broken \x1b[2J"), 1, "poolmuster: broken \\x1b[2J\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 1, ""),
        (OSError(28, "No space left on device"), 1, "poolmuster: No space left on device\n"),
    ],
)
def test_how_commands_end(error: BaseException, code: int, line: str) -> None:
    @command("sample")
    def sample() -> None:
        raise error

    result = CliRunner().invoke(sample, [], prog_name="sample")
    assert (result.exit_code, result.stderr) == (code, line)


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    code = (
        "import click\nfrom poolmuster.cli.options import command\n"
        "@command('sample')\ndef sample():\n    for _ in range(100000): click.echo('x' * 100)\nsample.main([])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("pools", "--model", b"a\xff"),
        ("pools", "--label", b"\xff=1"),
        ("changes", "--model", b"\xff"),
        ("why", b"c/n/\xff"),
        ("deregister", "c/n/a", "--relay-id", b"\xff"),
        ("register", "--cluster-id", b"\xff", "--name", "a"),
        ("pools", "--discovery", f"http://{'a' * 64}.example"),
    ],
)
def test_what_cannot_be_sent_is_a_usage_error(arguments: tuple[str | bytes, ...]) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "poolmuster", *arguments], capture_output=True, text=True, check=False, timeout=30
    )
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(("redirection", "told"), [(">/dev/full", "No space left on device"), (">&-", "")])
def test_output_that_cannot_be_written_is_one_line_or_none(redirection: str, told: str) -> None:
    found = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m poolmuster --version {redirection}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert found.returncode == (1 if told else 0)
    assert found.stderr == (f"poolmuster: {told}\n" if told else "")
