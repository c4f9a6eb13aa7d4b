"""Logging: its two forms, its levels, and what never gets into it."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from poolmuster.programs.logging import configure_logging


class Terminal(io.StringIO):
    """A standard error that people look at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Written:
    """What this test wrote to standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._so_far = ""

    def getvalue(self) -> str:
        self._so_far += self._capsys.readouterr().err
        return self._so_far


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Written:
    return Written(capsys)


def test_json_is_one_object_a_line_with_the_time_in_utc(stderr: Written) -> None:
    configure_logging("json", "info")
    structlog.get_logger("poolmuster.test").info("Listening", address="[::1]:1", count=2)
    line = json.loads(stderr.getvalue())
    at = datetime.fromisoformat(line.pop("timestamp"))
    assert at.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    assert line == {
        "event": "Listening",
        "level": "info",
        "logger": "poolmuster.test",
        "address": "[::1]:1",
        "count": 2,
    }


def test_text_is_one_line_with_its_details(stderr: Written) -> None:
    configure_logging("text", "info")
    structlog.get_logger("poolmuster.test").warning("It is late", by_ms=3)
    assert "It is late" in stderr.getvalue()
    assert "by_ms=3" in stderr.getvalue()
    assert "\x1b" not in stderr.getvalue(), "colours are for terminals"
    assert stderr.getvalue().count("\n") == 1


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_standard_librarys_loggers_come_out_in_the_same_form(log_format: str, stderr: Written) -> None:
    configure_logging(log_format, "info")
    logging.getLogger("uvicorn.error").warning("bad request from %s", "here\nand now \x1b[2J")
    (line,) = stderr.getvalue().splitlines()
    assert "uvicorn.error" in line
    assert "bad request from here" in line
    assert "\x1b" not in line
    if log_format == "json":
        assert json.loads(line)["event"] == "bad request from here\nand now \x1b[2J"


def test_without_a_format_a_terminal_gets_text_and_a_pipe_json(
    monkeypatch: pytest.MonkeyPatch, stderr: Written
) -> None:
    configure_logging(None, "info")
    structlog.get_logger("t").info("Here")
    assert json.loads(stderr.getvalue())["event"] == "Here"
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    configure_logging(None, "info")
    structlog.get_logger("t").info("Here")
    assert not terminal.getvalue().startswith("{")
    assert "Here" in terminal.getvalue()


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_a_level_hides_what_is_below_it(level: str, stderr: Written) -> None:
    configure_logging("json", level)
    levels = ["debug", "info", "warning", "error"]
    for each in levels:
        getattr(structlog.get_logger("ours"), each)("Said")
        getattr(logging.getLogger("theirs"), each)("said")
    shown = [json.loads(line)["level"] for line in stderr.getvalue().splitlines()]
    assert shown == [each for each in levels[levels.index(level) :] for _ in range(2)]


def test_a_second_call_takes_the_place_of_the_first(stderr: Written) -> None:
    log = structlog.get_logger("ours")
    configure_logging("text", "error")
    log.info("Not said")
    configure_logging("json", "info")
    log.info("Said")
    assert [json.loads(line)["event"] for line in stderr.getvalue().splitlines()] == ["Said"]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_is_written(log_format: str, stderr: Written) -> None:
    configure_logging(log_format, "debug")
    log = structlog.get_logger("ours")
    log.info("Asked", authorization="Bearer swordfish", frontend_token="swordfish", Cookie="swordfish")
    in_a_local_variable = "sword" + "fish"
    try:
        int(in_a_local_variable[0])
    except ValueError:
        log.exception("It went wrong", reason="a bad number")
    assert "swordfish" not in stderr.getvalue()
    assert "(hidden)" in stderr.getvalue()
    assert "ValueError: invalid literal" in stderr.getvalue()
