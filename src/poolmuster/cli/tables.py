"""Tables: drawn for a terminal, plain and aligned for a pipe. No cell can hold anything a terminal would act on."""

import sys
from collections.abc import Iterable, Sequence

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from poolmuster.cli.escape import visible, visible_json

GAP = "   "
PIECE = 16_384


def on_terminal() -> bool:
    """Whether a person looks at the output."""
    return sys.stdout.isatty()


def drawn(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table for a terminal; long cells are folded."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    return table


def plain(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table for a pipe."""
    cells = [list(columns), *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    return [
        GAP.join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table the way that suits standard output."""
    if on_terminal():
        Console(file=sys.stdout).print(drawn(columns, rows))
    else:
        emit("\n".join(plain(columns, rows)))


def show_json(body: bytes) -> None:
    """Print JSON as it came, with unsafe characters escaped where a terminal would act on them."""
    text = body.decode(errors="replace").rstrip("\n")
    emit(visible_json(text) if on_terminal() else text)


def emit(text: str) -> None:
    """Print ``text``, however long, as a line."""
    # In pieces: with PYTHONUNBUFFERED set, the end of a write that a reader cuts short would be lost without an error.
    for start in range(0, len(text), PIECE):
        click.echo(text[start : start + PIECE], nl=False)
    click.echo()


def _cell(text: str) -> str:
    return visible(text) or "-"
