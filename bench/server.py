"""``python -m bench.server FOLDER serve ...``: the service with each turn of its event loop measured.

A callback that schedules itself again is called once a turn, so the time between two of its calls is the length of
the turn, whatever was done in it. That keeps the core busy, so no CPU time is read off such a server.

On SIGUSR1 the longest turns since the last time are written to ``FOLDER/turns``. On SIGUSR2 the program of
`bench.expiry` begins: half the leases renewed within a second, the others again and again.
"""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.pools import body
from bench.turns import Turns
from poolmuster.cli.main import main
from poolmuster.model.auth import ANONYMOUS
from poolmuster.programs import serve as program
from poolmuster.service.instance import Instance

POOLS = 20_000
SLICE = 25


BODIES: list[bytes] = []
BUILT: list[Instance] = []
"""The one that this process serves. It is built before the event loop is."""


class Observer:
    """Measures turns of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self._loop = loop
        self._folder = folder
        self._turns = Turns()
        self._last_s = 0.0
        self._last_running_s = 0.0
        self._task: asyncio.Task[None] | None = None
        loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._loop.add_signal_handler(signal.SIGUSR1, self._report)
        self._loop.add_signal_handler(signal.SIGUSR2, self._renew)
        self._last_s, self._last_running_s = time.perf_counter(), time.thread_time()
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now_s, running_s = time.perf_counter(), time.thread_time()
        self._turns.take(now_s - self._last_s, running_s - self._last_running_s)
        self._last_s, self._last_running_s = now_s, running_s
        self._loop.call_soon(self._turn)

    def _report(self) -> None:
        part = self._folder / "turns.part"
        part.write_bytes(msgspec.json.encode(self._turns))
        part.rename(self._folder / "turns")
        self._turns = Turns()

    def _renew(self) -> None:
        self._task = self._loop.create_task(self._renewals())

    async def _renewals(self) -> None:
        """Every odd pool's lease is renewed for the last time within a second; even ones are kept alive after it."""
        registrar, bodies = BUILT[-1].registrar, BODIES
        for start in range(0, POOLS, SLICE):
            for content in bodies[start : start + SLICE]:
                await registrar.register_body(content, ANONYMOUS)
            await asyncio.sleep(0.001)
        odd, even = bodies[1::2], bodies[0::2]
        begun_s = self._loop.time()
        for start in range(0, len(odd), SLICE):
            for content in odd[start : start + SLICE]:
                await registrar.register_body(content, ANONYMOUS)
            due_s = begun_s + 0.9 * start / len(odd)
            await asyncio.sleep(max(0.0, due_s - self._loop.time()))
        (self._folder / "renewed").touch()
        while True:
            for start in range(0, len(even), SLICE):
                for content in even[start : start + SLICE]:
                    await registrar.register_body(content, ANONYMOUS)
                await asyncio.sleep(0.005)


def _observed(folder: Path) -> None:
    BODIES.extend(body(number) for number in range(POOLS))
    make_loop, build_instance = uvloop.new_event_loop, program.build_instance

    def new_event_loop() -> Any:
        loop = make_loop()
        Observer(loop, folder)  # the loop keeps it
        return loop

    def build(*args: Any) -> Instance:
        BUILT.append(build_instance(*args))
        return BUILT[-1]

    uvloop.new_event_loop = new_event_loop
    program.build_instance = build  # type: ignore[assignment]  # it hands on what it is given


if __name__ == "__main__":
    _observed(Path(sys.argv.pop(1)))
    main()
