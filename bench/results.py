"""What a run found: numbers with their targets, as a table and as JSON."""

import platform
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One number. ``at_least`` and ``at_most`` are what it should keep to."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def good(self) -> bool:
        """Whether it keeps to its target."""
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    @property
    def target(self) -> str:
        """The target in words."""
        parts = [f"at least {self.at_least:g}"] if self.at_least is not None else []
        parts += [f"at most {self.at_most:g}"] if self.at_most is not None else []
        return ", ".join(parts)


class Results:
    """Everything found so far."""

    def __init__(self) -> None:
        self._found: list[Result] = []
        self._console = Console(highlight=False)

    def add(
        self, name: str, value: float, unit: str, *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        """Take in a number, and say it at once: a run takes minutes."""
        result = Result(name, value, unit, at_least, at_most)
        self._found.append(result)
        self._console.print(f"{name}: {value:,.4g} {unit}" + ("" if result.good else f" (target: {result.target})"))

    @property
    def good(self) -> bool:
        """Whether every target was kept."""
        return all(result.good for result in self._found)

    def table(self) -> None:
        """Print all of it."""
        table = Table(box=None, pad_edge=False)
        for column in ("", "", "", "target", ""):
            table.add_column(column, justify="right" if not column else "left")
        for result in self._found:
            verdict = "" if not result.target else "kept" if result.good else "missed"
            table.add_row(result.name, f"{result.value:,.4g}", result.unit, result.target, verdict)
        self._console.print(table)

    def write(self, path: Path) -> None:
        """Write all of it to ``path``."""
        document = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": platform.python_version(),
            "results": self._found,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


Part = Callable[[Results], None]
