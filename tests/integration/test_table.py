"""``poolmuster table`` against a real DynamoDB, and one whose owner may not look at the table."""

import json
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError

import pytest
from click.testing import CliRunner, Result

from poolmuster.cli.main import cli
from tests.support.table_server import NOWHERE, REGION, Table, TableServer, Unfaithful

pytestmark = pytest.mark.integration

Run = Callable[..., Result]
DENIED = {"__type": "com.amazon.coral.service#AccessDeniedException", "Message": "User: u is not authorized"}


@pytest.fixture
def name() -> str:
    return f"poolmuster-test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def run(table_server: TableServer) -> Run:
    def run(command: str, name: str, *flags: str, url: str = table_server.url, **more: Any) -> Result:
        where = ["--dynamodb-table", name, "--dynamodb-region", REGION, "--dynamodb-endpoint-url", url]
        return CliRunner().invoke(
            cli, ["table", command, *where, *flags], prog_name="poolmuster", env={**NOWHERE, **more}
        )

    return run


@pytest.fixture
def denying(table_server: TableServer) -> Iterator[tuple[str, set[str]]]:
    """A way to the server on which some calls are denied: its URL, and the calls."""
    denied: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = 400, json.dumps(DENIED).encode()
            if self.headers["X-Amz-Target"].rpartition(".")[2] not in denied:
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                try:
                    request = urllib.request.Request(table_server.url, body, headers)  # noqa: S310  # the address is ours
                    with urllib.request.urlopen(request) as real:  # noqa: S310  # as above
                        status, answer = 200, real.read()
                except HTTPError as error:
                    with error:
                        status, answer = error.code, error.read()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", denied
        server.shutdown()
        thread.join()


def state_of(result: Result, what: str) -> str:
    line = next(line for line in result.stdout.splitlines() if line.startswith(what))
    return line.removeprefix(what).split()[0]


def test_a_table_that_is_created_is_as_the_service_needs_it(run: Run, name: str) -> None:
    result = run("create", name, "--yes")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "Done."
    result = run("check", name)
    assert result.exit_code == 0, result.output
    for what in ("table", "keys", "time to live", "permission dynamodb:Query", "permission dynamodb:PutItem", "clock"):
        assert state_of(result, what) == "good"
    assert f"Table {name} ({REGION}, http://127.0.0.1:" in result.stdout
    assert "AWS credentials: none found; a local server takes any" in result.stdout


def test_creating_it_again_changes_nothing(run: Run, name: str) -> None:
    assert run("create", name, "--yes").exit_code == 0
    result = run("create", name)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        "Nothing to do: the table is there, as it should be.",
    )


def test_a_replica_is_added_to_a_table_that_is_there(run: Run, name: str) -> None:
    assert run("create", name, "--yes").exit_code == 0
    result = run("create", name, "--replica", "eu-west-1", "--replica", REGION, "--yes")
    assert result.exit_code == 0, result.output
    assert "Turn on its stream" in result.stdout
    assert f"replica in {REGION}" not in result.stdout
    assert state_of(run("check", name), "replica eu-west-1") == "good"


def test_nothing_is_done_unasked(run: Run, name: str) -> None:
    result = run("create", name)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert state_of(run("check", name), "table") == "bad"


@pytest.mark.parametrize(("answer", "code", "there"), [("y\n", 0, True), ("n\n", 1, False)])
def test_it_asks_on_a_terminal(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, there: bool
) -> None:
    monkeypatch.setattr("poolmuster.cli.table.on_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", lambda text, **_: answer == "y\n")
    assert run("create", name).exit_code == code
    assert (run("check", name).exit_code == 0) is there


def test_a_table_without_time_to_live_is_said_and_mended(run: Run, table: Table) -> None:
    result = run("check", table.name)
    assert result.exit_code == 1
    assert state_of(result, "time to live") == "bad"
    assert result.stderr == "poolmuster: the table cannot be used as it is: time to live\n"
    assert run("create", table.name, "--yes").exit_code == 0
    assert run("check", table.name).exit_code == 0


def test_a_server_without_calls_for_the_time_to_live_says_so(run: Run, dynalite_server: TableServer, name: str) -> None:
    assert Unfaithful.TIME_TO_LIVE in dynalite_server.differs
    result = run("create", name, "--yes", url=dynalite_server.url)
    assert result.exit_code == 0, result.output
    assert "this server does not know of it" in result.stdout
    result = run("check", name, url=dynalite_server.url)
    assert result.stderr == "poolmuster: the table cannot be used as it is: time to live\n"
    for what in ("table", "keys", "permission dynamodb:Query", "permission dynamodb:PutItem", "clock"):
        assert state_of(result, what) == "good"


def test_other_keys_are_said_and_left_alone(run: Run, table_server: TableServer, name: str) -> None:
    table_server.client(REGION).create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
        BillingMode="PAY_PER_REQUEST",
    )
    result = run("check", name)
    assert result.exit_code == 1
    assert "is id (HASH, N); must be pk (HASH, S), sk (RANGE, S)" in result.stdout
    result = run("create", name, "--yes")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "must be pk" in result.stderr


def test_a_missing_table_names_table_region_and_endpoint(run: Run, name: str, table_server: TableServer) -> None:
    result = run("check", name)
    assert result.exit_code == 1
    detail = next(line for line in result.stdout.splitlines() if line.startswith("table "))
    for part in ("table_missing", name, REGION, table_server.url, "a wrong region looks the same"):
        assert part in detail


def test_not_being_permitted_to_look_is_no_failure(run: Run, table: Table, denying: tuple[str, set[str]]) -> None:
    url, denied = denying
    denied |= {"DescribeTable", "DescribeTimeToLive"}
    result = run("check", table.name, url=url)
    assert result.exit_code == 0, result.output
    assert state_of(result, "table") == "unknown"
    assert state_of(result, "time to live") == "unknown"
    assert state_of(result, "permission dynamodb:Query") == "good"


@pytest.mark.parametrize(
    ("call", "what"), [("Query", "permission dynamodb:Query"), ("PutItem", "permission dynamodb:PutItem")]
)
def test_a_permission_that_is_missing_is_named(
    run: Run, table: Table, denying: tuple[str, set[str]], call: str, what: str
) -> None:
    url, denied = denying
    denied.add(call)
    result = run("check", table.name, url=url)
    assert result.exit_code == 1
    assert state_of(result, what) == "bad"
    assert what in result.stderr


def test_the_check_writes_nothing(run: Run, table: Table) -> None:
    run("check", table.name)
    assert table.items() == []


def test_the_credentials_used_are_named_but_not_shown(run: Run, table: Table) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE1234", "AWS_SECRET_ACCESS_KEY": "secret-of-mine"}
    result = run("check", table.name, **keys)
    assert "AWS credentials: env (access key ...1234)" in result.stdout
    assert "secret-of-mine" not in result.output
    assert "AKIDEXAMPLE" not in result.output


def test_a_server_that_is_not_there_is_said(run: Run, name: str) -> None:
    result = run("check", name, url="http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "unreachable" in result.stdout


def test_without_a_region_the_flag_and_the_variables_are_named() -> None:
    env = {**NOWHERE, "AWS_REGION": None, "AWS_DEFAULT_REGION": None}
    result = CliRunner().invoke(cli, ["table", "check", "--dynamodb-table", "abc"], prog_name="poolmuster", env=env)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "AWS_DEFAULT_REGION" in result.stderr


def test_a_table_is_needed() -> None:
    result = CliRunner().invoke(cli, ["table", "check"], prog_name="poolmuster", env=dict(NOWHERE))
    assert result.exit_code == 2
    assert "table check needs --dynamodb-table" in result.stderr
