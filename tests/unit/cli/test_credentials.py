"""The flags of credentials, in every command: what is wrong with them, and what a refusal says to do."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from poolmuster.cli.main import cli
from tests.support.pki import Authority
from tests.unit.cli.stub import Canned, serving

ASK = ("pools", "status", "changes", "why c/n/a", "register --cluster-id c --name a", "deregister c/n/a")
RELAY = "relay --frontend http://127.0.0.1:1 --cluster-id c --name n"
SETTINGS = ("token-file", "ca-cert", "client-cert")
NO = {"type": "urn:poolmuster:unauthenticated", "detail": "It wants credentials."}


def run(line: str, *flags: str, url: str = "http://127.0.0.1:1", **env: str) -> Result:
    args = [*line.split(), "--discovery", url, *flags]
    return CliRunner().invoke(cli, args, prog_name="poolmuster", env=env)


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("sesame\n")
    return str(path)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("line", [*ASK, RELAY])
def test_a_file_that_is_missing_is_a_mistake_of_its_flag(line: str, setting: str, tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    result = run(line, f"--{setting}", path)
    assert result.exit_code == 2
    (said,) = result.stderr.splitlines()
    assert f"'--{setting}'" in said
    assert f"{path}: cannot be read: No such file or directory." in said
    variable = f"POOLMUSTER_{setting.replace('-', '_').upper()}"
    by_variable = run(line, **{variable: path})
    assert by_variable.exit_code == 2
    assert f"(set by {variable})" in by_variable.stderr


@pytest.mark.parametrize("line", ["pools", RELAY])
def test_a_key_without_its_certificate_is_a_mistake(line: str) -> None:
    result = run(line, "--client-key", "k")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "--client-key works only with --client-cert" in result.stderr


def test_a_file_without_a_token_is_refused_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("open sesame")
    result = run("pools", "--token-file", str(path))
    assert result.exit_code == 2
    assert "holds no token" in result.stderr
    assert "sesame" not in result.output


def test_a_certificate_without_a_key_is_refused(tmp_path: Path) -> None:
    paths = Authority().client("a").write(tmp_path)
    result = run("pools", "--client-cert", paths.cert)
    assert result.exit_code == 2
    assert "there is no key of the client certificate" in result.stderr


def test_the_token_is_sent_by_every_command(token: str) -> None:
    for line in ASK:
        with serving({}) as stub:
            run(line, "--token-file", token, url=stub.url)
        assert stub.tokens, line
        assert set(stub.tokens) == {"Bearer sesame"}, line


@pytest.mark.parametrize("line", [*ASK, "pools -w"])
def test_a_refusal_says_which_flag_to_pass(line: str, token: str) -> None:
    verb = {"register": "POST /pools", "deregister": "DELETE /pools/c/n/a"}.get(line.split(maxsplit=1)[0])
    paths = ("/pools", "/pools/watch", "/pools/c/n/a", "/status", "/changes")
    for status, flags, advice in (
        (401, (), "It wants credentials. Pass --token-file, or --client-cert and --client-key to an https URL."),
        (401, ("--token-file", token), "It wants credentials. What --token-file or --client-cert holds is not known"),
    ):
        answers = {path: Canned(status, NO) for path in [f"GET {path}" for path in paths] + [verb or "GET /"]}
        with serving(answers) as stub:
            result = run(line, *flags, url=stub.url)
        assert result.exit_code == 1
        (said,) = result.stderr.splitlines()
        assert said.startswith(f"poolmuster: {advice}")
        assert "sesame" not in result.output


def test_a_right_that_is_missing_is_told(token: str) -> None:
    with serving({"GET /pools": Canned(403, {"detail": "The role read is needed."})}) as stub:
        result = run("pools", "--token-file", token, url=stub.url)
    assert result.exit_code == 1
    assert result.stderr.startswith("poolmuster: The role read is needed. Pass credentials that may, by --token-file")


def test_a_token_in_the_clear_is_one_line_on_standard_error(token: str) -> None:
    """0.0.0.0 reaches this machine, and is no name of it."""
    with serving({"GET /pools": Canned(document={"pools": [], "complete": True, "revision": "b.1"})}) as stub:
        url = stub.url.replace("127.0.0.1", "0.0.0.0")
        result = run("pools", "-o", "name", "--token-file", token, url=url)
    assert (result.exit_code, result.stdout) == (0, "")
    (said,) = result.stderr.splitlines()
    assert said.startswith("poolmuster: The token goes over the network in the clear")
    assert url in said


@pytest.mark.parametrize("line", ["pools", RELAY.split(maxsplit=1)[0]])
def test_the_flags_stand_together_in_the_help(line: str) -> None:
    text = CliRunner().invoke(cli, [line, "--help"]).stdout
    _, _, group = text.partition("Discovery service:")
    group = group.partition("\n\n")[0]
    for flag in ("--discovery", *(f"--{setting}" for setting in SETTINGS), "--client-key"):
        assert flag in group
