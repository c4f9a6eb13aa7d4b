"""Runs a program: event loop, signals, tasks, the order in which they stop, and the limits of the process."""

import asyncio
import gc
import os
import resource
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import structlog

from poolmuster.ports.clock import Clock

TaskFunction = Callable[[], Coroutine[Any, Any, None]]

WORKER_NAME = "poolmuster-worker"
WORKER_GRACE_S = 0.2
"""How long the end of the process waits for worker threads, all of them together."""

SPARE_FILES = 256
"""Open files beside connections: listeners, the log, and those that a library opens for a moment."""

FREEZE_INTERVAL_S = 1.0


class StopStep(msgspec.Struct, frozen=True):
    """One step of an orderly stop; `run` begins when the step before it has ended or was cut.

    The supervisor cancels `run` when ``ends_by_ms`` have passed since the stop began, logs ``overrun`` as a warning if
    it is set, and goes on with the next step.
    """

    run: TaskFunction
    ends_by_ms: float
    overrun: str | None = None


class Supervisor:
    """Owns the event loop and every task of ``program``, whose name is in the name of its logger.

    `run` calls the program's main coroutine function, which builds the parts and passes their tasks to `supervise`.
    The constructor starts nothing.
    """

    def __init__(self, program: str, clock: Clock) -> None:
        self.boot_id = secrets.token_hex(6)
        """Names this run of the program, unlike any other."""
        self._log = structlog.get_logger(f"poolmuster.{program}")
        self._clock = clock
        self._stop = asyncio.Event()
        self._tasks: list[tuple[TaskFunction, asyncio.Task[None]]] = []

    def run(
        self,
        main: TaskFunction,
        *,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        workers: int | None = None,
    ) -> None:
        """Run ``main`` in an event loop of its own, in which SIGTERM and SIGINT call `stop`. Raises what it raises.

        ``workers`` is the number of threads for name lookups and other blocking calls of the event loop. If one of them
        hangs after ``main`` has returned, the process ends here with exit code 0. Both default to asyncio's own choice.
        """
        executor = ThreadPoolExecutor(workers, WORKER_NAME)
        runner = asyncio.Runner(loop_factory=loop_factory)
        try:
            runner.get_loop().set_default_executor(executor)
            runner.run(self._run(main))
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            _exit_if_worker_hangs()
            runner.close()

    async def _run(self, main: TaskFunction) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        await main()
        self._log.info("Stopped")

    def stop(self) -> None:
        """Begin the orderly stop. A second call changes nothing."""
        self._stop.set()

    async def supervise(
        self, tasks: Iterable[TaskFunction], *, start: TaskFunction, stop_steps: Iterable[StopStep], **fields: object
    ) -> None:
        """Start ``tasks`` in their order, await ``start``, wait for `stop`, run ``stop_steps``, cancel the tasks.

        Raises an exception group as soon as a task, ``start`` or a step raises: without one of its tasks a program does
        not go on. A task may return. ``fields`` are logged when the stop begins.
        """
        async with asyncio.TaskGroup() as group:
            self._tasks = [(task, group.create_task(self._run_task(task))) for task in tasks]
            await asyncio.sleep(0)  # every task has run to its first wait before ``start`` begins
            await start()
            await self._stop.wait()
            self._log.info("Stopping", **fields)
            began_ms = self._clock.monotonic_ms()
            for step in stop_steps:
                await self._run_step(group, step, began_ms)
            for _, running in self._tasks:
                running.cancel()

    async def join(self, task: TaskFunction) -> None:
        """Wait for the end of ``task``, one of `supervise`'s. If the caller is cancelled, so is the task."""
        await next(running for each, running in self._tasks if each == task)

    async def _run_task(self, task: TaskFunction) -> None:
        try:
            await task()
        except asyncio.CancelledError:
            raise
        except BaseException:
            name = getattr(getattr(task, "func", task), "__qualname__", str(task))  # of a partial, its function's
            self._log.exception("A background task died; this instance ends", task=name)
            raise

    async def _run_step(self, group: asyncio.TaskGroup, step: StopStep, began_ms: int) -> None:
        rest_ms = began_ms + step.ends_by_ms - self._clock.monotonic_ms()
        running = group.create_task(step.run())
        timer = group.create_task(self._clock.sleep_ms(rest_ms))
        await asyncio.wait((running, timer), return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        if running.cancel() and step.overrun is not None:
            self._log.warning(step.overrun)

    def limit_connections(self, wanted: int, other_files: int = 0) -> int:
        """How many of ``wanted`` connections this process may hold, beside ``other_files``; at least one.

        Raises the limit of open files as far as that needs no privileges, and logs a warning if that is too little.
        """
        # Connections never take the last files: credentials are read again from files while the program runs.
        spare_files = SPARE_FILES + other_files
        needed = wanted + spare_files
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = needed
        if soft != resource.RLIM_INFINITY and soft < needed:
            allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < needed:
            self._log.warning(
                "This process may open fewer files than --limit-connections needs; it takes fewer connections",
                needed=needed,
                allowed=allowed,
            )
        return max(1, min(wanted, allowed - spare_files))


def _exit_if_worker_hangs() -> None:
    """Python waits for worker threads without limit, and a name lookup may hang. After an error it does wait."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(WORKER_NAME)]
    for thread in threads:
        thread.join(WORKER_GRACE_S / len(threads))
    if any(thread.is_alive() for thread in threads) and sys.exc_info()[0] is None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


async def gc_freeze_loop() -> None:
    """Exempt long-lived objects from garbage collection, every second. A task for programs with many connections.

    A full collection stops the process: for 40 ms with 1,300 watchers that connected since the last one, as each is 59
    objects. Reference counts alone free pools, connections and watchers (no cycle was found after thousands of each had
    come and gone), so freezing them loses nothing. Young cycles, such as an exception that its own traceback refers to,
    are collected before.
    """
    gc.collect()
    while True:
        gc.freeze()
        await asyncio.sleep(FREEZE_INTERVAL_S)
        gc.collect(1)
