"""The flags of ``serve`` that say where the other instances are."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from poolmuster.cli.main import cli
from poolmuster.model.address import Address
from poolmuster.programs.settings.serve import PeerFlags, ServeSettings

Serve = Callable[..., Result]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ServeSettings]:
    """What ``serve`` would have been started with; it is not started."""
    started: list[ServeSettings] = []
    monkeypatch.setattr("poolmuster.programs.serve.serve", started.append)
    return started


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    monkeypatch.setattr("poolmuster.cli.program_options.configure_logging", lambda *_: None)

    def serve(*args: str, **env: str) -> Result:
        return CliRunner().invoke(cli, ["serve", *args], prog_name="poolmuster", env=env)

    return serve


def one_line(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_the_flags_become_settings(serve: Serve, started: list[ServeSettings]) -> None:
    flags = ("--peer-service", "peers.ns.svc", "--peer-service", "[2001:db8::1]:9", "--peer-expect", "3")
    assert serve(*flags, "--peer-token-file", "token", "--listen", "127.0.0.1:8099").exit_code == 0
    services = (Address("peers.ns.svc", 0), Address("2001:db8::1", 9))
    assert started[0].peers == PeerFlags(services=services, expect=3, token_file="token")
    assert started[0].peer_services == (Address("peers.ns.svc", 8099), Address("2001:db8::1", 9))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", Address("10.0.0.1", 0)),
        ("10.0.0.1:81", Address("10.0.0.1", 81)),
        ("[::1]", Address("::1", 0)),
        ("a:81", Address("a", 81)),
    ],
)
def test_a_port_may_be_left_out(serve: Serve, started: list[ServeSettings], text: str, address: Address) -> None:
    assert serve("--peer-service", text).exit_code == 0
    assert started[0].peers.services == (address,)


def test_variables_will_do(serve: Serve, started: list[ServeSettings]) -> None:
    assert serve(POOLMUSTER_PEER_SERVICE="a:1 b:2", POOLMUSTER_PEER_EXPECT="2").exit_code == 0
    assert started[0].peers == PeerFlags(services=(Address("a", 1), Address("b", 2)), expect=2)


def test_without_them_there_are_no_peers(serve: Serve, started: list[ServeSettings]) -> None:
    assert serve().exit_code == 0
    assert started[0].peers == PeerFlags()


@pytest.mark.parametrize("flags", [("--peer-expect", "3"), ("--peer-token-file", "f"), ("--peer-ca-cert", "f")])
def test_what_is_said_of_peers_needs_peers(serve: Serve, flags: tuple[str, ...]) -> None:
    said = one_line(serve(*flags))
    assert flags[0] in said
    assert "--peer-service" in said


def test_so_it_is_where_a_variable_says_it(serve: Serve) -> None:
    assert "set by POOLMUSTER_PEER_EXPECT" in one_line(serve(POOLMUSTER_PEER_EXPECT="2"))


@pytest.mark.parametrize(
    "flags", [("--peer-service", "a:1"), ("--peer-expect", "1"), ("--peer-token-file", "f"), ("--peer-ca-cert", "f")]
)
def test_a_table_is_shared_as_it_is(serve: Serve, flags: tuple[str, ...]) -> None:
    said = one_line(serve("--registration-storage", "dynamodb", "--dynamodb-table", "pools", *flags))
    assert flags[0] in said
    assert "--registration-storage memory" in said


@pytest.mark.parametrize("text", ["", ":81", "a:0", "a:b", "0.0.0.0:1", "[::]", "a b", "::1", "http://a", "a:70000"])
def test_what_names_no_instances_is_refused(serve: Serve, text: str) -> None:
    assert "--peer-service" in one_line(serve("--peer-service", text))


def test_a_name_is_given_once(serve: Serve) -> None:
    said = one_line(serve("--peer-service", "a", "--peer-service", "a:8080", "--listen", "127.0.0.1:8080"))
    assert "a:8080 twice" in said


def test_a_port_that_is_left_open_has_to_be_named(serve: Serve) -> None:
    assert "needs a port" in one_line(serve("--peer-service", "a", "--listen", "127.0.0.1:0"))


def test_authorities_are_for_those_who_serve_tls(serve: Serve) -> None:
    assert "--tls-cert-path" in one_line(serve("--peer-service", "a", "--peer-ca-cert", "f"))


def test_at_least_one_instance_is_expected(serve: Serve) -> None:
    assert "--peer-expect" in one_line(serve("--peer-service", "a", "--peer-expect", "0"))


def test_a_token_that_cannot_be_read_stops_the_start_before_anything_listens(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def bind(*_: object) -> None:
        raise AssertionError("it would have listened")

    monkeypatch.setattr("poolmuster.programs.listener.bind", bind)
    (tmp_path / "empty").write_text("")
    for path in (tmp_path / "missing", tmp_path / "empty"):
        said = one_line(serve("--peer-service", "a", "--peer-token-file", str(path)))
        assert str(path) in said
        assert "--peer" in said
