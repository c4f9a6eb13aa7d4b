"""What an operator can set, ask and read stands in the documentation, and nothing stands there that is not so."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from poolmuster.api.openapi import document
from poolmuster.cli.exit_codes import ExitCode
from poolmuster.cli.main import OPERATORS, PROGRAMS, cli
from poolmuster.cli.options import HELP_EPILOG, Command, CommandGroup, Option
from poolmuster.http.limits import HttpLimits
from poolmuster.model.errors import PoolmusterError
from poolmuster.programs.listener import Listener
from poolmuster.programs.metrics.peers import PeerMetrics
from poolmuster.programs.metrics.process import ProcessMetrics
from poolmuster.programs.metrics.table import TableMetrics
from poolmuster.programs.settings.listen import ListenSettings, OidcSettings
from poolmuster.sources.peers.transport import FEED_PATH, LIST_PATH, STREAM_PATH
from tests.support.parts import ROOT
from tests.support.pki import Authority
from tests.support.service import Service

PAGES_OF = {
    "serve": ("operations.md", "credentials.md", "dynamodb.md", "peers.md"),
    "relay": ("relay.md", "credentials.md"),
    "table": ("dynamodb.md",),
    "token": ("credentials.md",),
}
OTHERS_PAGES = ("client.md",)
PAGES = (
    "operations.md",
    "credentials.md",
    "dynamodb.md",
    "peers.md",
    "relay.md",
    "client.md",
    "api.md",
    "security.md",
    "architecture.md",
)
OF_OTHER_PROGRAMS = {"--help", "--read-only"}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def section(name: str, title: str) -> str:
    """One section of a page."""
    _, _, rest = page(name).partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def commands() -> dict[str, list[Command]]:
    """Each command, or those that it groups."""
    ctx = click.Context(cli)
    found = {name: cli.get_command(ctx, name) for name in (*PROGRAMS, *OPERATORS)}
    grouped = {
        name: list(each.commands.values()) if isinstance(each, CommandGroup) else [each] for name, each in found.items()
    }
    return {name: [each for each in several if isinstance(each, Command)] for name, several in grouped.items()}


def flags_of(several: Iterable[Command]) -> Iterator[str]:
    for command in several:
        for param in command.params:
            if isinstance(param, Option):
                yield from param.opts


@pytest.mark.parametrize("name", [*PROGRAMS, *OPERATORS])
def test_every_flag_of_every_command_is_documented(name: str) -> None:
    text = "\n".join(page(each) for each in PAGES_OF.get(name, OTHERS_PAGES))
    assert f"`poolmuster {name}" in text
    missing = [flag for flag in flags_of(commands()[name]) if not re.search(rf"[` ]{flag}(?![\w-])[^`\n]*`", text)]
    assert missing == []


def test_every_flag_that_a_page_names_is_one() -> None:
    known = {flag for several in commands().values() for flag in flags_of(several)} | OF_OTHER_PROGRAMS
    named = {
        (name, flag)
        for name in PAGES
        for code in re.findall(r"`([^`\n]+)`", page(name))
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-]*\.\.\.)", code)
        if code.startswith(("-", "poolmuster ")) and flag != "--some-flag"
    }
    assert {(name, flag) for name, flag in named if flag not in known} == set()


async def test_every_metric_of_the_service_is_documented_with_its_labels(tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_text("# nobody\n")
    pair = Authority().server("localhost").write(tmp_path)
    settings = ListenSettings(
        auth_tokens=str(tmp_path / "tokens.toml"),
        tls_cert_path=pair.cert,
        tls_key_path=pair.key,
        oidc=OidcSettings(issuers=(("https://issuer.example", "https://issuer.example/keys"),)),
    )
    async with Service() as service:
        await service.register("a")
        answer = await service.get("/pools")
        assert answer.status == 200
        TableMetrics(service.metrics.registry)
        PeerMetrics(service.metrics.registry)
        ProcessMetrics(service.metrics.registry)
        Listener(settings, HttpLimits(), service.clock).register_metrics(service.metrics.registry)
        shown = {}
        for family in service.metrics.registry.collect():
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            shown[family.name + ("_total" if family.type == "counter" else "")] = labels
    limits = {name for name in shown if name.startswith("poolmuster_limit_")}
    documented = dict(
        re.findall(r"`(poolmuster_\w+)(?:\{([\w,]+)\})?`", _first_cells(section("operations.md", "Metrics")))
    )
    assert {name: set(filter(None, labels.split(","))) for name, labels in documented.items()} == {
        name: labels for name, labels in shown.items() if name not in limits
    }
    flags = {flag.removeprefix("--limit-") for flag in flags_of(commands()["serve"]) if flag.startswith("--limit-")}
    assert {name.removeprefix("poolmuster_limit_").replace("_", "-") for name in limits} == flags


def _first_cells(text: str) -> str:
    return "\n".join(line.split(" | ")[0] for line in text.splitlines() if line.startswith("|"))


def test_every_route_is_documented() -> None:
    text = page("api.md")
    for path, item in document()["paths"].items():
        for method in sorted({"get", "post", "delete", "put"} & item.keys()):
            assert re.search(rf"`{method.upper()} {re.escape(path)}[?`]", text), f"{method.upper()} {path}"


def test_so_is_what_only_peers_read() -> None:
    for path in (LIST_PATH, FEED_PATH, STREAM_PATH):
        assert re.search(rf"`GET {path}[?`]", section("peers.md", "The protocol"))
        assert path not in document()["paths"]


def test_every_exit_code_is_documented_and_told_by_the_help() -> None:
    codes = {str(int(code)) for code in ExitCode}
    for name in ("operations.md", "client.md"):
        _, _, table = page(name).partition("| exit code |")
        assert set(re.findall(r"^\| (\d+) \|", table.partition("\n\n")[0], re.MULTILINE)) == codes, name
    _, _, told = HELP_EPILOG.partition("Exit codes: ")
    assert set(re.findall(r"\b\d+\b", told)) == codes


def _kinds(errors: Iterable[type[PoolmusterError]]) -> Iterator[type[PoolmusterError]]:
    for error in errors:
        if error.__module__ == PoolmusterError.__module__:
            yield error
            yield from _kinds(error.__subclasses__())


def test_every_problem_is_documented_with_its_status() -> None:
    answered = {(error.status, error.type) for error in _kinds([PoolmusterError])}
    rows = re.findall(r"^\| (\d+) \| `([\w-]+)`", section("api.md", "Errors"), re.MULTILINE)
    assert {(int(status), f"urn:poolmuster:{kind}") for status, kind in rows} == answered
