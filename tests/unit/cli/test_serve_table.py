"""The flags of ``serve`` that say where the DynamoDB table is."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from poolmuster.cli.main import cli
from poolmuster.programs.settings.serve import DynamoSettings, ServeSettings
from tests.support.parts import BOTOCORE
from tests.support.table_server import NOWHERE

Serve = Callable[..., Result]
DYNAMODB = ("--registration-storage", "dynamodb")
CLEAN = dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ServeSettings]:
    """What ``serve`` would have been started with; it is not started."""
    started: list[ServeSettings] = []
    monkeypatch.setattr("poolmuster.programs.serve.serve", started.append)
    monkeypatch.setattr("poolmuster.cli.program_options.configure_logging", lambda *_: None)
    return started


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    monkeypatch.setattr("poolmuster.cli.program_options.configure_logging", lambda *_: None)

    def serve(*args: str, **env: str) -> Result:
        return CliRunner().invoke(cli, ["serve", *args], prog_name="poolmuster", env={**NOWHERE, **CLEAN, **env})

    return serve


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake is reported before anything listens."""

    def bind(*_: Any) -> None:
        raise AssertionError("it would have listened")

    monkeypatch.setattr("poolmuster.programs.listener.bind", bind)


def one_line(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    return result.stderr


def test_the_flags_become_settings(serve: Serve, started: list[ServeSettings]) -> None:
    flags = (
        "--dynamodb-table",
        "pools",
        "--dynamodb-region",
        "eu-west-1",
        "--dynamodb-endpoint-url",
        "http://[::1]:1/",
    )
    assert serve(*DYNAMODB, *flags).exit_code == 0
    assert started[0].registration_storage == "dynamodb"
    assert started[0].dynamodb == DynamoSettings(table="pools", region="eu-west-1", endpoint_url="http://[::1]:1")


def test_variables_will_do(serve: Serve, started: list[ServeSettings]) -> None:
    result = serve(POOLMUSTER_REGISTRATION_STORAGE="dynamodb", POOLMUSTER_DYNAMODB_TABLE="arn:aws:dynamodb:r:1:table/t")
    assert result.exit_code == 0
    assert started[0].dynamodb == DynamoSettings(table="arn:aws:dynamodb:r:1:table/t")


def test_the_memory_store_has_no_table(serve: Serve, started: list[ServeSettings]) -> None:
    assert serve().exit_code == 0
    assert started[0].dynamodb is None


@pytest.mark.parametrize("flag", ["--dynamodb-table", "--dynamodb-region", "--dynamodb-endpoint-url"])
def test_a_flag_that_was_set_for_another_store_stops_the_start(serve: Serve, no_sockets: None, flag: str) -> None:
    value = "http://127.0.0.1:1" if flag.endswith("url") else "a-b"
    line = one_line(serve(flag, value), 2)
    assert line == f"poolmuster serve: {flag} works only with --registration-storage dynamodb.\n"


def test_so_does_its_variable(serve: Serve, no_sockets: None) -> None:
    line = one_line(serve(POOLMUSTER_DYNAMODB_REGION="eu-west-1"), 2)
    assert "--dynamodb-region (set by POOLMUSTER_DYNAMODB_REGION)" in line


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ((), "--dynamodb-table"),
        (("--dynamodb-table", "a"), "--dynamodb-table"),
        (("--dynamodb-table", "a/b/c"), "--dynamodb-table"),
        (("--dynamodb-table", "abc", "--dynamodb-table", "abc"), "--dynamodb-table is given 2 times"),
        (("--dynamodb-table", "abc", "--dynamodb-region", "evil.example/"), "--dynamodb-region"),
        (("--dynamodb-table", "abc", "--dynamodb-endpoint-url", "localhost:8000"), "--dynamodb-endpoint-url"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_flag(
    serve: Serve, no_sockets: None, flags: tuple[str, ...], named: str
) -> None:
    assert named in one_line(serve(*DYNAMODB, *flags), 2)


def test_without_a_region_one_line_names_the_flag_and_the_variables(serve: Serve, no_sockets: None) -> None:
    BOTOCORE.require()
    line = one_line(serve(*DYNAMODB, "--dynamodb-table", "pools"), 2)
    for name in ("--dynamodb-region", "AWS_REGION", "AWS_DEFAULT_REGION"):
        assert name in line


def test_a_region_that_is_none_is_a_mistake(serve: Serve, no_sockets: None) -> None:
    BOTOCORE.require()
    assert "'a.b/'" in one_line(serve(*DYNAMODB, "--dynamodb-table", "pools", AWS_REGION="a.b/"), 2)


def test_an_aws_profile_that_is_not_there_is_said(serve: Serve, no_sockets: None) -> None:
    BOTOCORE.require()
    assert "profile (nobody)" in one_line(serve(*DYNAMODB, "--dynamodb-table", "pools", AWS_PROFILE="nobody"), 1)


def test_without_the_extra_the_command_that_installs_it_is_said(
    serve: Serve, no_sockets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "poolmuster.programs.stores.find_spec", lambda name: None if name == "botocore" else find_spec(name)
    )
    line = one_line(serve(*DYNAMODB, "--dynamodb-table", "pools"), 1)
    assert "pip install 'poolmuster[dynamodb]'" in line
