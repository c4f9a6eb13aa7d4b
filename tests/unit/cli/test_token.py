"""``poolmuster token create``."""

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from poolmuster.auth.credentials_file import digest_of, parse_credentials
from poolmuster.cli.main import cli
from poolmuster.model.auth import TokenCredential


def create(*args: str) -> Result:
    return CliRunner().invoke(cli, ["token", "create", *args], prog_name="poolmuster")


def test_a_token_is_printed_once_and_its_line_lets_it_in() -> None:
    result = create("--name", "relay-eu", "--role", "register", "--role", "read", "--cluster", "eu-*", "--cluster", "x")
    assert result.exit_code == 0
    token, line = result.stdout.splitlines()
    assert len(token) == len("pmt_") + 43
    assert token not in line
    principal = parse_credentials(line.encode()).find(TokenCredential(digest_of(token.encode()))).principal
    assert principal.name == "relay-eu"
    assert principal.roles == {"read", "register"}
    assert principal.clusters.patterns == ("eu-*", "x")
    assert create("--name", "a", "--role", "read").stdout != create("--name", "a", "--role", "read").stdout


def test_a_token_can_end_by_itself() -> None:
    line = create("--name", "a", "--role", "read", "--days", "30").stdout.splitlines()[1]
    (known,) = parse_credentials(line.encode()).tokens.values()
    assert known.expires_at_ms is not None


def test_a_token_goes_into_a_file_for_its_owner_alone_and_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "a.token"
    result = create("--name", "a", "--role", "read", "--token-out", str(path))
    (line,) = result.stdout.splitlines()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_text().strip()
    assert token not in result.output
    assert parse_credentials(line.encode()).find(TokenCredential(digest_of(token.encode()))).principal.name == "a"
    again = create("--name", "a", "--role", "read", "--token-out", str(path))
    assert (again.exit_code, again.stdout) == (2, "")
    assert "File exists" in again.stderr
    assert path.read_text().strip() == token


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--role", "read"), "--name"),
        (("--name", "a"), "--role"),
        (("--name", "a", "--role", "root"), "--role"),
        (("--name", "a", "--role", "register"), "--cluster"),
        (("--name", "a", "--role", "read", "--cluster", "x"), "--cluster"),
        (("--name", " ", "--role", "read"), "name"),
        (("--name", "a", "--role", "read", "--days", "0"), "--days"),
        (("--name", "a", "--role", "read", "--token-out", "/none/at/all"), "--token-out"),
    ],
)
def test_a_mistake_makes_no_token(args: tuple[str, ...], words: str) -> None:
    result = create(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
