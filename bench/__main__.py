"""``python -m bench [part ...] [--json FILE]``: measure, say what was found, and fail where a target is missed."""

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from bench import churn, credentials, expiry, fanout, heartbeats, lists, memory, peers, table
from bench.programs import LOAD_CORE, SERVER_CORE
from bench.results import Results

PARTS: dict[str, Callable[[Results], Awaitable[None]]] = {
    "heartbeats": heartbeats.run,
    "credentials": credentials.run,
    "lists": lists.run,
    "fanout": fanout.run,
    "expiry": expiry.run,
    "memory": memory.run,
    "churn": churn.run,
    "table": table.run,
    "peers": peers.run,
}


def main() -> int:
    """Run the parts that were named, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all without one")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if shutil.which("etcd") is None:
        raise SystemExit("The program etcd is not here. On Debian: apt-get install etcd-server")
    if not {SERVER_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        raise SystemExit("Two cores are needed: one for the server, one for the load.")
    os.sched_setaffinity(0, {LOAD_CORE})
    results = Results()
    for name in arguments.parts or PARTS:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_part(name, results))
    results.table()
    if arguments.json:
        results.write(arguments.json)
    return 0 if results.good else 1


async def _part(name: str, results: Results) -> None:
    await PARTS[name](results)


if __name__ == "__main__":
    sys.exit(main())
