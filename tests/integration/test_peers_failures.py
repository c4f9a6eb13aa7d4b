"""Instances that stop, die, crash over and over or are cut off, and what the others say and list meanwhile."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet
from tests.support.instances import eventually
from tests.support.peers import (
    HEALED_WITHIN_S,
    HEARTBEAT_S,
    INCOMPLETE_WITHIN_S,
    LEASE_S,
    MARGIN,
    Cluster,
    Peer,
    cluster,
    peers,
)
from tests.support.process import ProgramFailed
from tests.support.variables import variable
from tests.support.watching import Told, Watcher, watching

pytestmark = pytest.mark.integration

CRASHES_S = 120.0 if variable("SOAK_S") else 15.0
LIVES_S = 1.2
"""How long one that crashes lives: read by all, and much shorter than a lease."""

LONG_LEASE_S = 9.0
"""So long that one that was stopped, and is cold, is not complete in time by having waited for it."""

SPLIT_ROUNDS = 10 if variable("SOAK_S") else 1


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with peers(tmp_path, 3) as found:
        yield found


async def fail(trio: Cluster, kind: str) -> None:
    one, two, three = trio.peers
    match kind:
        case "stopped":
            three.program.send_signal(signal.SIGSTOP)
        case "cut off":
            await trio.split((one, two), (three,))
        case "killed":
            await three.program.kill()


async def mend(trio: Cluster, kind: str) -> None:
    match kind:
        case "stopped":
            trio.peers[2].program.send_signal(signal.SIGCONT)
        case "cut off":
            await trio.heal()
        case "killed":
            await trio.peers[2].program.start()


def about(told: Told) -> str:
    """Which pool an event is about."""
    found: dict[str, Any] = told.event.get("pool") or told.event.get("key") or {}
    return str(found.get("dgd_name"))


def movements(watcher: Watcher, name: str, since: int = 0) -> list[str]:
    """What a watcher was told of one pool."""
    types = ("added", "changed", "removed")
    return [told.type for told in watcher.told[since:] if told.type in types and about(told) == name]


@pytest.mark.parametrize(("kind", "lease_s"), [("stopped", LONG_LEASE_S), ("cut off", LEASE_S), ("killed", LEASE_S)])
async def test_p3_one_that_fails_is_named_and_its_pools_end_unless_their_relays_move(
    tmp_path: Path, kind: str, lease_s: float
) -> None:
    async with peers(tmp_path, 3, lease_s=lease_s) as trio:
        await _fail_and_mend(trio, kind)


async def _fail_and_mend(trio: Cluster, kind: str) -> None:
    one, two, three = trio.peers
    async with Fleet(HEARTBEAT_S, attempt_s=HEARTBEAT_S / 2) as fleet:
        fleet.join(one, "of-one")
        fleet.join(three, "moves", "stays")
        await trio.agreed(trio.peers, "moves", "of-one", "stays")
        async with watching(one.url) as at_one, watching(two.url) as at_two:
            await fail(trio, kind)
            failed_s = time.monotonic()
            fleet.places["moves"] = one
            for peer in (one, two):
                await eventually(lambda peer=peer: _names(peer, three), INCOMPLETE_WITHIN_S * MARGIN)  # type: ignore[misc]
            print(f"{kind}: both name it after {time.monotonic() - failed_s:.2f} s")
            for watcher in (at_one, at_two):
                gone = await watcher.wait_type("removed", trio.lease_s * MARGIN)
                assert (about(gone), gone.event["cause"]) == ("stays", "expired")
            assert time.monotonic() - failed_s <= trio.lease_s + INCOMPLETE_WITHIN_S * MARGIN
            for watcher in (at_one, at_two):
                assert [movements(watcher, name) for name in ("of-one", "moves")] == [[], []]
            await mend(trio, kind)
            took_s = await trio.agreed(trio.peers, "moves", "of-one", "stays")
            print(f"{kind}: all complete {took_s:.2f} s after it is well again")
            assert took_s < HEALED_WITHIN_S * MARGIN
            for watcher in (at_one, at_two):
                assert movements(watcher, "stays") == ["removed", "added"]
                assert [movements(watcher, name) for name in ("of-one", "moves")] == [[], []]


async def _names(peer: Peer, failed: Peer) -> bool:
    status, found = await peer.get()
    named = any(failed.machine.address in each["name"] for each in found["sources"] if each["state"] != "fresh")
    return status == 200 and not found["complete"] and named


async def test_p3_one_that_is_dead_for_good_holds_nothing_after_a_lease(trio: Cluster) -> None:
    one, two, three = trio.peers
    async with Fleet(HEARTBEAT_S) as fleet:
        fleet.join(one, "a")
        await trio.agreed(trio.peers, "a")
        await three.program.kill()
        await asyncio.sleep(LEASE_S / 3)
        assert not await one.complete()
        assert await trio.agreed((one, two), "a", timeout_s=LEASE_S * MARGIN) > 0


@pytest.mark.soak
async def test_p3_one_that_crashes_over_and_over_does_not_keep_the_others_incomplete(trio: Cluster) -> None:
    one, two, three = trio.peers

    async def crash() -> None:
        while True:
            await three.program.kill()
            await three.program.start()
            await asyncio.sleep(LIVES_S)

    async with Fleet(HEARTBEAT_S) as fleet:
        fleet.join(one, "a")
        await trio.agreed(trio.peers, "a")
        crashing = asyncio.create_task(crash())
        try:
            await asyncio.sleep(2 * LEASE_S)
            answers: list[bool] = []
            until_s = time.monotonic() + CRASHES_S
            while time.monotonic() < until_s:
                answers += await asyncio.gather(one.complete(), two.complete())
                await asyncio.sleep(0.05)
            assert not crashing.done()
        finally:
            crashing.cancel()
            with contextlib.suppress(asyncio.CancelledError, ProgramFailed):
                await crashing
        share = sum(answers) / len(answers)
        print(f"complete in {share:.0%} of {len(answers)} answers")
        assert share > 0.9
        if three.program.returncode is not None:
            await three.program.start()
        await trio.agreed(trio.peers, "a", timeout_s=LEASE_S * MARGIN)


async def test_p3_what_a_crashing_one_took_and_nobody_heard_of_is_not_missing_in_a_complete_list(trio: Cluster) -> None:
    """It takes a registration while it is cut off, and dies: until a lease has passed there may be such a pool."""
    one, two, three = trio.peers
    await trio.split((one, two), (three,))
    await asyncio.sleep(INCOMPLETE_WITHIN_S + 1)
    await three.register("unheard", relay_id="unheard")
    taken_s = time.monotonic()
    await three.program.kill()
    await trio.heal()
    while time.monotonic() - taken_s < LEASE_S - 0.3:
        for peer in (one, two):
            assert not await peer.complete()
        await asyncio.sleep(0.05)
    await trio.agreed((one, two), timeout_s=LEASE_S * MARGIN)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("length_s", "lease_s"), [(2.0, 9.0), (LEASE_S + 3, LEASE_S)], ids=["shorter than a lease", "longer than a lease"]
)
async def test_p4_after_a_split_nothing_comes_back_and_nothing_is_lost(
    tmp_path: Path, length_s: float, lease_s: float
) -> None:
    async with cluster(tmp_path, lease_s) as found, contextlib.AsyncExitStack() as stack:
        four = await found.started(4)
        await found.agreed(four)
        fleet = await stack.enter_async_context(Fleet(HEARTBEAT_S))
        watchers = [await stack.enter_async_context(watching(peer.url)) for peer in four]
        for number in range(SPLIT_ROUNDS):
            await _split_and_heal(found, fleet, watchers, length_s, f"-{number}")


async def _split_and_heal(found: Cluster, fleet: Fleet, watchers: list[Watcher], length_s: float, mark: str) -> None:
    near, near_too, far, far_too = found.peers
    stays_near, stays_far, hops, gone, hops_and_gone = (
        name + mark for name in ("stays-near", "stays-far", "hops", "gone", "hops-and-gone")
    )
    fleet.join(near, stays_near, hops, gone)
    fleet.join(far, stays_far, hops_and_gone)
    await found.agreed(found.peers, *fleet.places)
    since = [len(watcher.told) for watcher in watchers]
    await found.split((near, near_too), (far, far_too))
    fleet.places[hops] = far_too
    await near_too.register(hops_and_gone, fleet.relay_id(hops_and_gone))
    await asyncio.sleep(length_s / 2)
    await fleet.leave(gone, at=near_too)
    await fleet.leave(hops_and_gone, at=near)
    await asyncio.sleep(length_s / 2)
    await found.heal()
    for name in (gone, hops_and_gone):
        del fleet.places[name]
    took_s = await found.agreed(found.peers, *fleet.places)
    print(f"all complete {took_s:.2f} s after the split")
    assert took_s < HEALED_WITHIN_S * MARGIN
    await asyncio.sleep(found.lease_s + 1)
    for peer in found.peers:
        assert await peer.lists(*fleet.places)
    for watcher, start, side in zip(watchers, since, ("near", "near", "far", "far"), strict=True):
        for name in (gone, hops_and_gone):
            assert movements(watcher, name, start) == ["removed"], "it does not come back"
        kept = {"near": (stays_near,), "far": (stays_far, hops)}[side]
        if length_s < found.lease_s:
            kept = (stays_near, stays_far, hops)
        for name in kept:
            assert movements(watcher, name, start) == [], "a live pool is not lost"
