"""Whose handshake begins next."""

import asyncio
import itertools

from poolmuster.http.handshake_queue import HandshakeQueue


async def started(turns: HandshakeQueue, *clients: str) -> tuple[list[str], list["asyncio.Task[None]"]]:
    """Tasks that wait for their turn in this order, and who has had it so far."""
    order: list[str] = []

    async def enter(client: str) -> None:
        await turns.enter(client)
        order.append(client)

    tasks = [asyncio.create_task(enter(client)) for client in clients]
    await asyncio.sleep(0)
    return order, tasks


async def spin(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_one_begins_in_a_turn_of_the_loop_and_others_run_between() -> None:
    turns = HandshakeQueue(100)
    order, _ = await started(turns, *"abcdefgh")
    seen = [len(order)]
    for _ in range(30):
        await asyncio.sleep(0)
        seen.append(len(order))
    assert order == list("abcdefgh")
    assert max(after - before for before, after in itertools.pairwise(seen)) == 1


async def test_one_client_with_many_does_not_make_the_others_wait() -> None:
    turns = HandshakeQueue(100)
    order, _ = await started(turns, *["many"] * 50, "one", "two")
    await spin(20)
    assert {"one", "two"} <= set(order[:6])


async def test_one_client_has_half_of_the_places_at_most() -> None:
    turns = HandshakeQueue(10)
    order, _ = await started(turns, *["many"] * 50)
    await spin(60)
    assert order == ["many"] * 5
    later, _ = await started(turns, "one", "two")
    await spin(10)
    assert later == ["one", "two"]
    turns.leave("many")
    await spin(10)
    assert order == ["many"] * 6


async def test_so_many_are_under_way_at_once_and_more_when_they_leave() -> None:
    turns = HandshakeQueue(2)
    order, _ = await started(turns, *"abcde")
    await spin(20)
    assert order == ["a", "b"]
    turns.leave("a")
    await spin(20)
    assert order == ["a", "b", "c"]
    turns.leave("b")
    turns.leave("c")
    await spin(20)
    assert order == list("abcde")


async def test_whoever_goes_away_while_waiting_takes_no_turn() -> None:
    turns = HandshakeQueue(1)
    order, tasks = await started(turns, *"abc")
    await spin(5)
    tasks[1].cancel()
    await spin(5)
    turns.leave("a")
    await spin(5)
    assert order == ["a", "c"]


async def test_whoever_is_cancelled_as_the_turn_comes_gives_it_back() -> None:
    turns = HandshakeQueue(1)
    order, tasks = await started(turns, *"abc")
    await spin(5)
    turns.leave("a")  # it is the turn of the second now, whose task has not run yet
    tasks[1].cancel()
    await spin(10)
    assert order == ["a", "c"]
