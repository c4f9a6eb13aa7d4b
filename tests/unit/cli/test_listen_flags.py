"""The flags of every program that listens: what is refused before anything listens, and in which words."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from poolmuster.cli.main import cli
from tests.support.ports import free_port

RELAY = ("relay", "--frontend", "http://127.0.0.1:1", "--cluster-id", "c", "--name", "a")
PROGRAMS = {"serve": ("serve",), "relay": RELAY}

Run = Callable[..., Result]


@pytest.fixture(params=PROGRAMS)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a program up to where it would take its address."""
    monkeypatch.setattr("poolmuster.cli.program_options.configure_logging", lambda *_: None)

    def bind(*_: object) -> None:
        raise AssertionError("it went as far as to listen")

    monkeypatch.setattr("poolmuster.programs.listener.bind", bind)

    def run(*args: str, **env: str) -> Result:
        return CliRunner().invoke(cli, [*PROGRAMS[request.param], *args], prog_name="poolmuster", env=env)

    return run


def one_line(result: Result) -> str:
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


OTHERS_REACH_IT = (
    "0.0.0.0:0",
    ":0",
    "[::]:0",
    "10.0.0.1:0",
    "[fe80::1]:0",
    "[::ffff:0.0.0.0]:0",
    "[::ffff:10.0.0.1]:0",
    "example.com:0",
    "localhost.example.com:0",
    "0:0",
    "127.0.0.1.example.com:0",
)


@pytest.mark.parametrize("address", OTHERS_REACH_IT)
def test_an_address_that_others_reach_is_refused_without_credentials(run: Run, address: str) -> None:
    line = one_line(run("--listen", address))
    assert "--auth-tokens" in line
    assert "--allow-anonymous" in line
    assert "no credentials are set" in one_line(run(POOLMUSTER_LISTEN=address))


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "localhost:0", "127.9.9.9:0", "[::ffff:127.0.0.1]:0"])
def test_loopback_needs_none(run: Run, address: str) -> None:
    assert isinstance(run("--listen", address).exception, AssertionError)


@pytest.mark.parametrize("address", OTHERS_REACH_IT)
def test_either_way_out_lets_it_listen(run: Run, address: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("# nobody\n")
    for way_out in (("--allow-anonymous",), ("--auth-tokens", str(tokens))):
        assert isinstance(run("--listen", address, *way_out).exception, AssertionError), way_out


def test_a_certificate_alone_says_nothing_about_who_is_let_in(run: Run, tmp_path: Path) -> None:
    flags = ("--tls-cert-path", str(tmp_path / "c"), "--tls-key-path", str(tmp_path / "k"))
    assert "no credentials are set" in one_line(run("--listen", ":0", *flags))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--tls-cert-path", "c"), "--tls-cert-path needs --tls-key-path"),
        (("--tls-key-path", "k"), "--tls-key-path needs --tls-cert-path"),
        (("--tls-client-ca", "a"), "--tls-client-ca needs --tls-cert-path"),
        (
            ("--tls-cert-path", "c", "--tls-key-path", "k", "--tls-client-ca", "a"),
            "--tls-client-ca needs --auth-tokens",
        ),
        (("--auth-oidc", "https://i=keys.json"), "--auth-oidc needs --auth-tokens"),
        (("--auth-tokens", "t", "--allow-anonymous"), "--allow-anonymous contradicts --auth-tokens"),
        (("--auth-oidc-audience", "a"), "--auth-oidc-audience works only with --auth-oidc"),
        (("--auth-oidc-refresh-secs", "5"), "--auth-oidc-refresh-secs works only with --auth-oidc"),
        (("--auth-oidc-ca-cert", "https://i=a"), "--auth-oidc-ca-cert works only with --auth-oidc"),
        (("--auth-oidc-token-file", "https://i=a"), "--auth-oidc-token-file works only with --auth-oidc"),
        (
            ("--auth-tokens", "t", "--auth-oidc", "https://i=a", "--auth-oidc", "https://i=b"),
            "--auth-oidc names the issuer 'https://i' twice",
        ),
        (("--auth-oidc", "https://i"), "--auth-oidc"),
        (
            ("--auth-tokens", "t", "--auth-oidc", "https://i=a.json", "--auth-oidc-token-file", "https://i=t"),
            "--auth-oidc-token-file is for 'https://i', whose keys are not fetched",
        ),
        (
            ("--auth-tokens", "t", "--auth-oidc", "https://i=https://i/keys", "--auth-oidc-ca-cert", "https://j=t"),
            "--auth-oidc-ca-cert is for 'https://j'",
        ),
        (("--auth-tokens", "none/at/all"), "--auth-tokens: none/at/all: cannot be read: No such file or directory"),
        (("--health-listen", "9090"), "--health-listen"),
    ],
)
def test_what_contradicts_itself_is_one_line_that_names_the_flag(run: Run, flags: tuple[str, ...], words: str) -> None:
    assert words in one_line(run(*flags))


def test_a_credentials_file_that_cannot_be_used_stops_the_start(run: Run, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    for content, words in (
        ("", "is empty"),
        ("a = 1", "a: Expected `object`, got `int`; write it as in {"),
        ('a = {sha256 = "pmt_x", roles = []}', "of length >= 1 - at `$.roles`"),
    ):
        tokens.write_text(content)
        line = one_line(run("--auth-tokens", str(tokens)))
        assert words in line
        assert "pmt_x" not in line


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("listen", ["127.0.0.1:{}", "localhost:{}"])
def test_one_address_for_both_is_a_port_in_use(program: str, listen: str) -> None:
    port = free_port()
    flags = ("--listen", listen.format(port), "--health-listen", f"127.0.0.1:{port}")
    result = CliRunner().invoke(cli, [*PROGRAMS[program], *flags], prog_name="poolmuster")
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port} (--health-listen): Address already in use" in result.stderr


def test_a_name_that_turns_out_to_be_another_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(host: str, port: int) -> list[socket.socket]:
        assert (host, port) == ("localhost", 0)
        listener = socket.socket()
        listener.bind(("0.0.0.0", 0))
        return [listener]

    monkeypatch.setattr("poolmuster.programs.listener.bind", bind)
    result = CliRunner().invoke(cli, ["serve", "--listen", "localhost:0"], prog_name="poolmuster")
    assert result.exit_code == 2
    assert "--listen localhost:0 turned out to be 0.0.0.0:" in result.stderr
