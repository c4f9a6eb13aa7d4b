"""The client for programs without asyncio: the same calls, and threads that never wait for what is over."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from poolmuster.client import Client, SyncFollower
from poolmuster.model.errors import InvalidInput, NotFound
from tests.unit.client.fakes import event, pool, snapshot
from tests.unit.client.server import PATIENCE_S, Server, answers, lines, problem, streams

NOWHERE = "http://127.0.0.1:1"


async def in_thread(work: Callable[[], None]) -> None:
    """Run synchronous code beside the server that it talks to. One that hangs must not keep the tests from ending."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            errors.append(error)
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, daemon=True).start()
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
    for error in errors:
        raise error


async def test_the_synchronous_client_does_the_same(server: Server) -> None:
    server.handlers = [
        answers(pools=[pool("a")], complete=True),
        answers(lease={"duration_ms": 1, "heartbeat_interval_ms": 1, "ends_at_ms": 1}),
        answers(204, body=b""),
        answers(listed=True),
        answers(changes=[]),
        answers(pools=1),
        answers(routers=[]),
        problem(404, "not-found"),
        streams(lines(snapshot("a"), event("added", 2, pool=pool("b")))),
    ]

    def use() -> None:
        with Client(server.url) as client:
            assert len(client.list().pools) == 1
            assert client.register(b"{}").lease.duration_ms == 1
            client.deregister("c/n/a")
            assert client.get("c/n/a").document["listed"]
            assert client.changes(5).document == {"changes": []}
            assert client.status().document == {"pools": 1}
            assert client.routers() == ()
            with pytest.raises(NotFound):
                client.get("c/n/b")
            with client.follow() as follower:
                updates = follower.updates()
                while len(follower.pools) < 2:
                    next(updates)
                assert follower.has_list
                assert follower.complete
                assert follower.sources == ()
                assert list(follower.usable) == list(follower.pools)
                assert follower.pools_of("none") == ()
                assert (follower.age_ms or 0) < PATIENCE_S * 1000

    await in_thread(use)


def test_a_client_holds_nothing_before_its_block_and_after_it() -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    before = held()
    client = Client(NOWHERE)
    assert held() == before
    for _ in range(2):
        with client:
            assert held() != before
        assert held() == before


def test_a_client_that_cannot_begin_leaves_no_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    threads = threading.active_count()
    with pytest.raises(InvalidInput), Client("https://a"):
        pass
    assert threading.active_count() == threads


def test_a_client_is_used_inside_its_block_and_one_at_a_time() -> None:
    client = Client(NOWHERE)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="outside of its `with` block"):
            client.list()
        with client, pytest.raises(RuntimeError, match="two `with` blocks"), client:
            pass
    with client, client.follow() as follower:
        assert not follower.has_list
    with pytest.raises(RuntimeError, match="outside of its `with` block"):
        _ = follower.pools


async def test_updates_that_are_dropped_leave_nothing_behind(server: Server) -> None:
    # Cut again and again: there is always an update to come, however late somebody asks for it.
    server.handlers = [streams(lines(snapshot("a"), event("added", 2, pool=pool("b"))), end="cut")]

    def use() -> None:
        with Client(server.url) as client, client.follow() as follower:
            never_begun = weakref.ref(follower.updates()._subscription)
            updates = follower.updates()
            broken_off = weakref.ref(updates._subscription)
            for _ in updates:
                break
            del updates
            assert follower.pools is not None, "the loop has had a turn since"
            assert (never_begun(), broken_off()) == (None, None)

    await in_thread(use)


async def test_updates_end_with_the_follower_and_may_be_closed_at_any_time(server: Server) -> None:
    server.handlers = [streams(lines(snapshot("a")))]

    def use() -> None:
        with Client(server.url) as client:
            with client.follow() as follower:
                updates, closed = follower.updates(), follower.updates()
                assert next(updates).kind in ("connected", "overrun")
                closed.close()
                closed.close()
                assert list(closed) == []
            assert [update.kind for update in updates] in ([], ["snapshot"])
            assert list(follower.updates()) == []
        assert list(updates) == []
        updates.close()

    await in_thread(use)


@pytest.mark.parametrize("closes", [True, False])
async def test_another_thread_that_waits_for_updates_is_let_go(server: Server, closes: bool) -> None:
    server.handlers = [streams(lines(snapshot("a")))]

    def use() -> None:
        waits = threading.Event()

        def consume() -> None:
            for update in updates:
                if update.kind == "snapshot":
                    waits.set()

        with Client(server.url) as client, client.follow() as follower:
            updates = follower.updates()
            consumer = threading.Thread(target=consume, daemon=True)
            consumer.start()
            assert waits.wait(PATIENCE_S)
            if closes:
                updates.close()
                consumer.join(PATIENCE_S)
                assert not consumer.is_alive()
        consumer.join(PATIENCE_S)
        assert not consumer.is_alive()

    await in_thread(use)


async def test_a_call_in_another_thread_ends_with_the_client(server: Server) -> None:
    """It would wait for ever for the loop that has ended."""
    server.handlers = [streams(lines(snapshot("a")))]

    def use() -> None:
        entered = threading.Event()
        errors: list[BaseException] = []

        def call(follower: SyncFollower) -> None:
            async def wait() -> None:
                entered.set()
                await asyncio.Event().wait()

            try:
                follower._wait(wait())
            except RuntimeError as error:
                errors.append(error)

        with Client(server.url) as client, client.follow() as follower:
            caller = threading.Thread(target=call, args=[follower], daemon=True)
            caller.start()
            assert entered.wait(PATIENCE_S)
        caller.join(PATIENCE_S)
        assert "has ended" in str(errors[0])

    await in_thread(use)
