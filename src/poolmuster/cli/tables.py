"""Output on standard output: tables, drawn for a terminal and aligned for a pipe, pools as rows, and JSON.

No cell holds anything that a terminal would act on. Members of a pool with a wrong type show as empty: the service may
be of another version.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from poolmuster.cli.text import key_text, visible, visible_json
from poolmuster.client import Document
from poolmuster.client.responses import key_of, objects_in, strings_of

TABLE = ("CLUSTER", "NAMESPACE", "NAME", "REGION", "MODELS")
WIDE = (*TABLE, "ZONE", "ALIASES", "CONTEXT", "WEIGHT", "FRONTEND", "LABELS")
GAP = "   "
PIECE = 16_384


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
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
    # In pieces: with PYTHONUNBUFFERED set, the rest of a write that a reader cuts short would be lost without an error.
    for start in range(0, len(text), PIECE):
        click.echo(text[start : start + PIECE], nl=False)
    click.echo()


def _cell(text: str) -> str:
    return visible(text) or "-"


def pool_table(pools: Iterable[Document], *, wide: bool) -> tuple[Sequence[str], list[list[str]]]:
    """The columns and rows of a table of pools."""
    return WIDE if wide else TABLE, [_pool_row(pool, wide=wide) for pool in pools]


def _pool_row(pool: Document, *, wide: bool) -> list[str]:
    location = pool.get("location")
    location = location if isinstance(location, dict) else {}
    models = objects_in(pool.get("models"))
    cells = [
        *(_text(pool.get(name)) for name in ("cluster_id", "namespace", "dgd_name")),
        _text(location.get("region")),
        ", ".join(_text(model.get("id")) for model in models),
    ]
    if wide:
        labels = pool.get("labels")
        cells += [
            _text(location.get("availability_zone")),
            ", ".join(alias for model in models for alias in strings_of(model.get("aliases"))),
            ", ".join(_text(model.get("context_window")) or "-" for model in models),
            _text(pool.get("weight")),
            _text(pool.get("frontend_url")),
            ", ".join(f"{name}={_text(value)}" for name, value in labels.items()) if isinstance(labels, dict) else "",
        ]
    return cells


def key_of_pool(pool: Document) -> str:
    """The pool's key as one word."""
    key = key_of(pool)
    return "-" if key is None else key_text(key)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
