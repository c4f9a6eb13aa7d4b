"""Work that blocks, in threads that nobody waits for at the end: what hangs must not hold the exit."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(name: str, work: Callable[[], T]) -> T:
    """What ``work`` returns or raises. Whoever waits can be cancelled at once; the thread goes on by itself.

    The event loop's own threads are waited for when it closes, and a resolver that is silent holds one for ten seconds.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run(done: "asyncio.Future[T]") -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001  # it is raised again, in the task that waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_finish, done, result, error)

    threading.Thread(target=run, args=(done,), name=name, daemon=True).start()
    try:
        return await done
    finally:
        # An error leads to this frame by its traceback, and would lead back by this: a cycle for each that is raised.
        del done


def _finish(done: "asyncio.Future[T]", result: T | None, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)  # type: ignore[arg-type]  # it is the result of ``work``, which may be None
    else:
        done.set_exception(error)
