"""What holds for every test: their order, hypothesis's ways, and that nothing is left out in silence."""

from tests.support import variables  # noqa: F401, I001  # first of all: what comes after reads the environment
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.parts import everything_wanted

pytest_plugins = ["tests.support.fixtures"]

ORDER = ("unit", "property", "contract", "integration")
"""The quick tests first: a fault shows in seconds."""

LEFT_OUT = pytest.StashKey[dict[str, list[str]]]()

# Deadlines measure the machine, not the code; CI tries the same examples each time, people's machines new ones.
settings.register_profile(
    "here", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("here")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        folder = item.nodeid.split("/")[1]
        return ORDER.index(folder) if folder in ORDER else len(ORDER)

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        item.config.stash[LEFT_OUT].setdefault(reason.removeprefix("Skipped: "), []).append(item.nodeid)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if everything_wanted() and session.config.stash[LEFT_OUT] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash[LEFT_OUT]
    if not left_out:
        terminalreporter.write_line("Left out: nothing.")
        return
    terminalreporter.section("Left out" + (": nothing may be, so this run has failed" if everything_wanted() else ""))
    for reason, tests in left_out.items():
        terminalreporter.write_line(f"{reason}")
        for test in tests:
            terminalreporter.write_line(f"    {test}")
