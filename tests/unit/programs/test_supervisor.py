"""How a program runs and stops: its tasks, its stop steps, signals and limits, on a clock that the test moves."""

import asyncio
import contextlib
import functools
import os
import resource
import signal
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from poolmuster.platform.lease_clock import SystemClock
from poolmuster.programs import supervisor as module
from poolmuster.programs.supervisor import SPARE_FILES, StopStep, Supervisor, TaskFunction
from tests.support.clock import ManualClock


class World:
    """A supervisor, and tasks and steps that record in ``events`` what happens to them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.supervisor = Supervisor("test", self.clock)
        self.events: list[str] = []

    def task(self, name: str, lasts_ms: float = 1e9, error: Exception | None = None) -> TaskFunction:
        async def run() -> None:
            self.events.append(f"{name} starts")
            try:
                await self.clock.sleep_ms(lasts_ms)
            except asyncio.CancelledError:
                self.events.append(f"{name} is cancelled")
                raise
            self.events.append(f"{name} ends")
            if error is not None:
                raise error

        return run

    @asynccontextmanager
    async def supervising(
        self, tasks: Sequence[TaskFunction], *steps: StopStep, start: TaskFunction | None = None
    ) -> AsyncIterator["asyncio.Task[None]"]:
        start = start or self.task("listener", 0)
        program = asyncio.create_task(self.supervisor.supervise(tasks, start=start, stop_steps=steps, delay_s=0.5))
        await self.clock.settle()
        try:
            yield program
        finally:
            program.cancel()
            with contextlib.suppress(asyncio.CancelledError, ExceptionGroup):
                await program


@pytest.fixture
def world() -> World:
    return World()


def errors_of(program: "asyncio.Task[None]") -> tuple[BaseException, ...]:
    error = program.exception()
    assert isinstance(error, BaseExceptionGroup)
    return error.exceptions


async def test_tasks_start_in_their_order_and_before_the_listener(world: World) -> None:
    async with world.supervising([world.task("store"), world.task("catalog")]):
        assert world.events == ["store starts", "catalog starts", "listener starts", "listener ends"]


async def test_a_task_that_dies_ends_the_others_and_the_program(world: World) -> None:
    error = RuntimeError("broken")
    tasks = [world.task("healthy"), world.task("broken", 100, error)]
    with capture_logs() as logs:
        async with world.supervising(tasks, StopStep(world.task("step", 0), 1000)) as program:
            await world.clock.advance(99)
            assert not program.done()
            await world.clock.advance(1)
            assert errors_of(program) == (error,)
    assert world.events[-2:] == ["broken ends", "healthy is cancelled"], "no stop step runs"
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("A background task died; this instance ends", "error")
    ]
    assert logs[0]["task"].endswith("World.task.<locals>.run")
    assert logs[0]["exc_info"]


async def test_a_task_that_dies_is_named_by_its_function_whatever_arguments_are_bound_to_it(world: World) -> None:
    async def run(sink: str) -> None:
        raise RuntimeError(sink)

    with capture_logs() as logs:
        async with world.supervising([functools.partial(run, "broken")]):
            pass
    assert logs[0]["task"].endswith("<locals>.run")


async def test_a_listener_that_does_not_start_ends_the_program(world: World) -> None:
    error = OSError("no such address")
    async with world.supervising([world.task("store")], start=world.task("listener", 0, error)) as program:
        assert errors_of(program) == (error,)
    assert world.events[-1] == "store is cancelled"


async def test_a_task_may_return_while_the_program_goes_on(world: World) -> None:
    async with world.supervising([world.task("short", 10), world.task("long")]) as program:
        await world.clock.advance(1_000)
        assert world.events[-1] == "short ends"
        assert not program.done()


async def test_stop_steps_run_one_after_another_and_then_the_tasks_are_cancelled(world: World) -> None:
    steps = (StopStep(world.task("drain", 300), 1_000), StopStep(world.task("close", 400), 1_000))
    with capture_logs() as logs:
        async with world.supervising([world.task("store")], *steps) as program:
            world.events.clear()
            world.supervisor.stop()
            await world.clock.advance(299)
            assert world.events == ["drain starts"]
            await world.clock.advance(1)
            assert world.events == ["drain starts", "drain ends", "close starts"]
            await world.clock.advance(400)
            assert world.events[3:] == ["close ends", "store is cancelled"]
            assert program.done()
            assert program.exception() is None
    assert logs == [{"event": "Stopping", "log_level": "info", "delay_s": 0.5}]


async def test_a_stop_step_that_hangs_is_cut_at_its_limit_and_the_next_one_runs(world: World) -> None:
    steps = (
        StopStep(world.task("hangs"), 200, "Not every client left"),
        StopStep(world.task("hangs too"), 500),
        StopStep(world.task("too late"), 500, "Never begun"),
    )
    with capture_logs() as logs:
        async with world.supervising([world.task("store")], *steps) as program:
            world.events.clear()
            world.supervisor.stop()
            await world.clock.advance(200)
            assert world.events == ["hangs starts", "hangs is cancelled", "hangs too starts"]
            await world.clock.advance(299)
            assert not program.done()
            await world.clock.advance(1)
            assert program.done(), "limits count from the begin of the stop, not from that of the step"
            assert program.exception() is None
    assert world.events[-1] == "store is cancelled"
    assert [line["event"] for line in logs] == ["Stopping", "Not every client left", "Never begun"]


async def test_a_step_that_fails_ends_the_program(world: World) -> None:
    error = RuntimeError("broken")
    steps = (StopStep(world.task("broken", 0, error), 1_000), StopStep(world.task("next", 0), 1_000))
    async with world.supervising([world.task("store")], *steps) as program:
        world.supervisor.stop()
        await world.clock.settle()
        assert errors_of(program) == (error,)
    assert "store is cancelled" in world.events
    assert "next starts" not in world.events


async def test_a_task_that_dies_during_a_stop_ends_the_program_at_once(world: World) -> None:
    error = RuntimeError("broken")
    async with world.supervising(
        [world.task("broken", 100, error)], StopStep(world.task("drain"), 1_000, "cut")
    ) as program:
        world.supervisor.stop()
        await world.clock.advance(100)
        assert errors_of(program) == (error,)
    assert world.events[-1] == "drain is cancelled"


async def test_a_stop_that_is_asked_for_during_the_start_begins_after_it(world: World) -> None:
    step = StopStep(world.task("drain", 0), 1_000)
    async with world.supervising([world.task("store")], step, start=world.task("listener", 100)) as program:
        world.supervisor.stop()
        world.supervisor.stop()
        await world.clock.advance(99)
        assert world.events == ["store starts", "listener starts"]
        await world.clock.advance(1)
        assert world.events[2:] == ["listener ends", "drain starts", "drain ends", "store is cancelled"]
        assert program.done()


async def test_a_step_can_wait_for_a_task(world: World) -> None:
    agents = world.task("agents", 100)
    leave = StopStep(lambda: world.supervisor.join(agents), 200, "cut")
    with capture_logs() as logs:
        async with world.supervising([world.task("store"), agents], leave, StopStep(world.task("close", 0), 300)):
            world.events.clear()
            world.supervisor.stop()
            await world.clock.advance(100)
    assert world.events == ["agents ends", "close starts", "close ends", "store is cancelled"]
    assert [line["event"] for line in logs] == ["Stopping"]


async def test_the_limit_of_a_step_cuts_the_task_it_waits_for(world: World) -> None:
    agents = world.task("agents")
    leave = StopStep(lambda: world.supervisor.join(agents), 200, "cut")
    async with world.supervising([world.task("store"), agents], leave, StopStep(world.task("close", 50), 300)):
        world.events.clear()
        world.supervisor.stop()
        await world.clock.advance(199)
        assert world.events == []
        await world.clock.advance(1)
        assert sorted(world.events) == ["agents is cancelled", "close starts"], "the store runs on"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_program_in_good_order(number: signal.Signals) -> None:
    supervisor = Supervisor("test", SystemClock())
    events = []

    async def sends_signal() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            events.append("task")

    async def step() -> None:
        events.append("step")

    async def main() -> None:
        await supervisor.supervise([sends_signal], start=nothing, stop_steps=[StopStep(step, 1_000)])
        events.append("main")

    with capture_logs() as logs:
        supervisor.run(main)
    assert events == ["step", "task", "main"]
    assert [line["event"] for line in logs] == ["Stopping", "Stopped"]


async def nothing() -> None:
    """A start or a step without work."""


def test_an_error_of_the_program_is_raised() -> None:
    async def main() -> None:
        raise OSError("the port is taken")

    with pytest.raises(OSError, match="taken"), capture_logs() as logs:
        Supervisor("test", SystemClock()).run(main)
    assert logs == []


@pytest.fixture
def hung() -> threading.Event:
    return threading.Event()


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch, hung: threading.Event) -> list[int]:
    codes: list[int] = []

    def exit_now(code: int) -> None:
        codes.append(code)
        hung.set()

    monkeypatch.setattr(os, "_exit", exit_now)
    monkeypatch.setattr(module, "WORKER_GRACE_S", 0.01)
    return codes


def looks_up(call: Callable[[], object], error: Exception | None = None) -> TaskFunction:
    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, call)
        if error is not None:
            raise error

    return main


def test_a_lookup_that_hangs_does_not_hold_the_exit(hung: threading.Event, exits: list[int]) -> None:
    Supervisor("test", SystemClock()).run(looks_up(hung.wait), workers=2)
    assert exits == [0]


def test_a_lookup_that_ended_leaves_the_exit_to_python(exits: list[int]) -> None:
    Supervisor("test", SystemClock()).run(looks_up(int), workers=2)
    assert exits == []


def test_an_error_is_shown_though_a_lookup_hangs(hung: threading.Event, exits: list[int]) -> None:
    releasing = threading.Timer(0.05, hung.set)
    releasing.start()
    with pytest.raises(RuntimeError, match="broken"):
        Supervisor("test", SystemClock()).run(looks_up(hung.wait, RuntimeError("broken")))
    assert exits == []
    releasing.join()


OTHER_FILES = SPARE_FILES + 8
NEEDED = OTHER_FILES + 1000


@pytest.mark.parametrize(
    ("soft", "hard", "set_to", "connections"),
    [
        (NEEDED, 10_000, None, 1000),
        (1024, NEEDED, NEEDED, 1000),
        (1024, 10_000, NEEDED, 1000),
        (1024, resource.RLIM_INFINITY, NEEDED, 1000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 1000),
        (20, OTHER_FILES + 5, OTHER_FILES + 5, 5),
        (20, 30, 30, 1),
    ],
)
def test_connections_leave_files_for_everything_else(
    monkeypatch: pytest.MonkeyPatch, world: World, soft: int, hard: int, set_to: int | None, connections: int
) -> None:
    """The file limit is raised as far as the hard limit; what it allows beside other files is for connections."""
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    with capture_logs() as logs:
        assert world.supervisor.limit_connections(1000, other_files=8) == connections
    assert limits == ([] if set_to is None else [(set_to, hard)])
    assert [(line["needed"], line["allowed"]) for line in logs] == ([] if connections == 1000 else [(NEEDED, set_to)])
