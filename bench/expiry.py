"""Half of 20,000 leases end within a second, while 100 watchers look on and one client lists a filtered part."""

import asyncio
import signal
import time

from bench.load import Connection, get, open_streams
from bench.observing import longest_turn
from bench.pools import TEAMS
from bench.programs import Program, poolmuster
from bench.results import Results

WATCHERS = 100
FILTERS = 50
LIST_EVERY_S = 0.05
LISTS_AT_LEAST = 20
ENDING = 10_000
LISTED = "/pools?label=tenth%3Dt0"


async def run(results: Results) -> None:
    """The leases are renewed inside the server (`bench.server`): over HTTP, 10,000 would take more than a second."""
    with poolmuster(observed=True) as program:
        targets = ["/pools/watch"] * (WATCHERS // 2)
        targets += [f"/pools/watch?label=team%3Dteam-{number % TEAMS}" for number in range(WATCHERS // 2)]
        program.send_signal(signal.SIGUSR2)
        while not (program.folder / "renewed").exists():
            await asyncio.sleep(0.05)
        await open_streams(program, targets, lambda *_: None, at_once=5)
        await longest_turn(program)
        times_s = await _list_until_over(program)
        turns = await longest_turn(program)
        collections = program.metric("poolmuster_gc_pause_seconds_")
    results.add(
        "list of 1,000 filtered pools in a mass expiry, p99", times_s[int(len(times_s) * 0.99)] * 1e3, "ms", at_most=50
    )
    results.add("list of 1,000 filtered pools in a mass expiry, median", times_s[len(times_s) // 2] * 1e3, "ms")
    results.add("longest turn in a mass expiry, running", turns.longest_running_s * 1e3, "ms", at_most=20)
    results.add("longest turn in a mass expiry, by the clock", turns.longest_s * 1e3, "ms")
    over = collections["count"] - collections['bucket{le="0.02"}']
    results.add("garbage collections over 20 ms", over, "", at_most=0)


async def _list_until_over(program: Program) -> list[float]:
    """The times of the lists while leases ended, sorted. The client lists before and after that, too."""
    answered = asyncio.Event()
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(lambda *_: answered.set()), "127.0.0.1", program.port
    )
    times_s: list[float] = []
    before, latest, complete = 0, 0, False
    while latest < before + ENDING or len(times_s) < LISTS_AT_LEAST:
        answered.clear()
        started_s = time.perf_counter()
        connection.send(get(LISTED))
        await answered.wait()
        took_s = time.perf_counter() - started_s
        latest = _revision(connection.head)
        if not complete:
            before = latest  # that the list becomes complete is a change too
            complete = b"poolmuster-complete: true" in connection.head
        if latest > before:
            times_s.append(took_s)
        await asyncio.sleep(max(0.0, LIST_EVERY_S - took_s))
    assert latest == before + ENDING, f"{latest - before} leases ended"
    return sorted(times_s)


def _revision(head: bytes) -> int:
    """How many changes there were, by the head of a list's answer."""
    return int(head.partition(b"poolmuster-revision: ")[2].split(b"\r\n")[0].rpartition(b".")[2])
