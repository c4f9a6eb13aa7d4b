"""Flags, their variables, and every way to get them wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from poolmuster.cli.options import Command, command, is_set, option, refuse_foreign
from poolmuster.cli.values import ADDRESS, LABEL, POSITIVE_SECONDS, URLS
from poolmuster.model.address import Address

Run = Callable[..., Result]


@command("sample")
@option(
    "--listen",
    type=ADDRESS,
    default="127.0.0.1:8080",
    default_variable="POOLMUSTER_SAMPLE_LISTEN_DEFAULT",
    group="Serving",
    help="Where to listen.",
)
@option("--lease-duration-secs", type=POSITIVE_SECONDS, default=15.0, group="Leases", help="How long.")
@option("--label", "labels", type=LABEL, multiple=True, group="Serving", help="Labels.")
@option("--file", "files", type=click.Path(path_type=Path), multiple=True, help="Files.")
@option("--router-port", type=click.IntRange(1, 65535), default=80, group="Karmada", help="A port.")
@option("--discovery", type=URLS, default="http://127.0.0.1:8080", help="Services.")
@option("-w", "--watch", is_flag=True, help="Live.")
@click.pass_context
def sample(ctx: click.Context, /, **values: Any) -> int:
    """A command to test with."""
    refuse_foreign(ctx, "--pool-discovery karmada", ["--router-port"])
    click.echo(repr(values))
    click.echo(f"listen set: {is_set(ctx, '--listen')}")
    return 3 if values["watch"] else 0


@pytest.fixture
def run() -> Run:
    def run(*args: str, **env: str) -> Result:
        return CliRunner().invoke(sample, args, prog_name="sample", env=env)

    return run


def one_line(result: Result) -> str:
    """The single line on standard error of a command that refused its usage."""
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    return result.stderr.rstrip("\n")


def test_defaults_are_converted_and_not_set(run: Run) -> None:
    result = run()
    assert result.exit_code == 0
    assert repr(Address("127.0.0.1", 8080)) in result.stdout
    assert "'lease_duration_secs': 15.0" in result.stdout
    assert "listen set: False" in result.stdout


def test_a_variable_can_replace_a_default_and_sets_nothing(run: Run) -> None:
    image = {"POOLMUSTER_SAMPLE_LISTEN_DEFAULT": "[::]:7"}
    result = run(**image)
    assert repr(Address("::", 7)) in result.stdout
    assert "listen set: False" in result.stdout
    assert result.stderr == "", "it is a variable that is known"
    assert repr(Address("::", 8)) in run("--listen", "[::]:8", **image).stdout
    assert repr(Address("::", 9)) in run(POOLMUSTER_LISTEN="[::]:9", **image).stdout
    assert repr(Address("127.0.0.1", 8080)) in run(POOLMUSTER_SAMPLE_LISTEN_DEFAULT=" ").stdout
    assert "[default: [::]:7]" in run("--help", **image).stdout


def test_the_function_returns_the_exit_code(run: Run) -> None:
    assert run("-w").exit_code == 3


def test_a_variable_sets_its_flag(run: Run) -> None:
    result = run(POOLMUSTER_LISTEN="[::]:9", POOLMUSTER_LABEL="a=1  b=2", POOLMUSTER_FILE="x:y z")
    assert repr(Address("::", 9)) in result.stdout
    assert "listen set: True" in result.stdout
    assert "(('a', '1'), ('b', '2'))" in result.stdout
    assert "(PosixPath('x:y'), PosixPath('z'))" in result.stdout


def test_the_flag_wins_over_its_variable(run: Run) -> None:
    result = run("--listen", ":1", "--label", "c=3", POOLMUSTER_LISTEN=":2", POOLMUSTER_LABEL="a=1")
    assert repr(Address("", 1)) in result.stdout
    assert "(('c', '3'),)" in result.stdout


@pytest.mark.parametrize("value", ["", " ", "tcp://10.0.0.1:80", "udp://10.0.0.1:80"])
def test_a_blank_or_injected_variable_is_not_set(run: Run, value: str) -> None:
    result = run(POOLMUSTER_ROUTER_PORT=value, POOLMUSTER_LABEL=value)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "'labels': ()" in result.stdout


def test_lists_of_urls_take_commas_and_white_space(run: Run) -> None:
    result = run(POOLMUSTER_DISCOVERY="http://a/,https://b/x  http://a")
    assert "('http://a', 'https://b/x')" in result.stdout


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--listen", ":1", "--listen", ":1"], "--listen"),
        (["-w", "--watch"], "--watch"),
        (["--lis", ":1"], "--lis"),
        (["--listen"], "--listen"),
        (["--listen", "8080"], "--listen"),
        (["--listen", "::1:80"], "--listen"),
        (["--listen", "[x]:80"], "--listen"),
        (["--listen", "a b:80"], "--listen"),
        (["--listen", "a:65536"], "--listen"),
        (["--lease-duration-secs", "0"], "--lease-duration-secs"),
        (["--lease-duration-secs", "nan"], "--lease-duration-secs"),
        (["--lease-duration-secs", "inf"], "--lease-duration-secs"),
        (["--lease-duration-secs", "5m"], "--lease-duration-secs"),
        (["--label", "x"], "--label"),
        (["--label", "=x"], "--label"),
        (["--discovery", "ftp://a"], "--discovery"),
        (["--discovery", "http://u:p@a"], "--discovery"),
        (["--discovery", ","], "--discovery"),
        (["extra"], "extra"),
        (["--router-port", "81"], "--router-port works only with --pool-discovery karmada"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_flag(run: Run, args: list[str], named: str) -> None:
    line = one_line(run(*args))
    assert line.startswith("sample: ")
    assert named in line


def test_a_mistake_in_a_variable_names_the_variable(run: Run) -> None:
    assert "POOLMUSTER_LISTEN" in one_line(run(POOLMUSTER_LISTEN="nowhere"))


def test_a_foreign_flag_set_by_its_variable_names_both(run: Run) -> None:
    line = one_line(run(POOLMUSTER_ROUTER_PORT="80"))
    assert "--router-port" in line
    assert "POOLMUSTER_ROUTER_PORT" in line


def test_control_characters_of_the_command_line_are_not_echoed(run: Run) -> None:
    assert "\x1b" not in one_line(run("--listen", "\x1b[2J"))


def test_unknown_variables_are_named_once_each(run: Run) -> None:
    result = run(
        POOLMUSTER_LISTN=":1",
        POOLMUSTER_PORT="8080",
        POOLMUSTER_SERVICE_HOST="10.0.0.1",
        POOLMUSTER_SERVICE_PORT="80",
        POOLMUSTER_SERVICE_PORT_HTTP="80",
        POOLMUSTER_PORT_80_TCP="tcp://10.0.0.1:80",
        POOLMUSTER_PORT_80_TCP_ADDR="10.0.0.1",
        POOLMUSTER_PORT_80_UDP_PROTO="udp",
        POOLMUSTER_FOO_SERVICE_HOST="10.0.0.1",
        POOLMUSTER_FOO_PORT="tcp://10.0.0.1:80",
    )
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert [line.split("variable ")[1].split()[0] for line in lines] == ["POOLMUSTER_LISTN", "POOLMUSTER_PORT"]


def test_help_shows_flags_under_headings(run: Run) -> None:
    text = run("--help").stdout
    headings = [line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Serving", "Leases", "Options", "Karmada", "Help"]
    assert "POOLMUSTER_SOME_FLAG" in text


def test_flags_are_not_abbreviated() -> None:
    assert isinstance(sample, Command)
    result = CliRunner().invoke(sample, ["--disc=http://a"], prog_name="sample")
    assert result.exit_code == 2
