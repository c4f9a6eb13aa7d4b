"""The tables under the benchmarks: a dynalite, whose units can be believed, and one that answers by heart.

Both run on the core of the load, so that the service has its own.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.programs import LOAD_CORE, Program, free_port, poolmuster, running

DYNALITE = Path(__file__).parents[1] / ".cache/dynalite/node_modules/.bin/dynalite"
TABLE = "pools"
ALONE = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}
"""Variables under which nothing looks for credentials beyond this machine."""


@contextlib.contextmanager
def dynalite() -> Iterator[Program]:
    """A dynalite with an empty table."""
    if not DYNALITE.exists() or shutil.which("node") is None:
        raise SystemExit("dynalite is not here: make parts installs it")
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        command = ["node", str(DYNALITE), "--host", "127.0.0.1", "--port", str(port), "--createTableMs", "0"]
        with running(command, port, "/", Path(name), core=LOAD_CORE) as program:
            make = [sys.executable, "-m", "poolmuster", "table", "create", "--yes", "--dynamodb-table", TABLE]
            subprocess.run([*make, "--dynamodb-endpoint-url", program.url], check=True, env=ALONE, capture_output=True)
            yield program


@contextlib.contextmanager
def by_heart(pools: int) -> Iterator[Program]:
    """A table of so many pools whose server knows its answers beforehand (`bench.table_by_heart`)."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "bench.table_by_heart", str(port), str(pools)]
        with running(command, port, "/", Path(name), core=LOAD_CORE) as program:
            yield program


@contextlib.contextmanager
def service(table: Program, *flags: str, observed: bool = False, lease_s: int = 15) -> Iterator[Program]:
    """The service on that table."""
    where = ("--registration-storage", "dynamodb", "--dynamodb-table", TABLE, "--dynamodb-endpoint-url", table.url)
    with poolmuster(*where, *flags, observed=observed, lease_s=lease_s, env=ALONE) as program:
        yield program


def item_bytes(item: dict[str, dict[str, str]]) -> int:
    """The size of an item as DynamoDB counts it: names and values in UTF-8, two digits of a number a byte."""
    size = 0
    for name, value in item.items():
        ((kind, text),) = value.items()
        size += len(name.encode()) + ((len(text) + 1) // 2 + 1 if kind == "N" else len(text.encode()))
    return size


def dumps(document: object) -> bytes:
    """JSON as DynamoDB writes it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
