"""Instances that share registrations by themselves, as processes on machines of their own, when nothing fails."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet
from tests.support.instances import eventually
from tests.support.peers import (
    HEALED_WITHIN_S,
    HEARTBEAT_S,
    LEASE_S,
    MARGIN,
    TOLD_WITHIN_S,
    Cluster,
    Peer,
    RawList,
    peers,
)
from tests.support.watching import watching

pytestmark = pytest.mark.integration

RELAYS = 300
CHANGES = 9
LONG_LEASE_S = 12.0
"""So long that what comes at once, three times over, is well before it."""


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with peers(tmp_path, 3) as found:
        yield found


async def test_p1_all_list_the_same_bytes_and_watchers_of_the_others_are_told_soon(trio: Cluster) -> None:
    one, two, three = trio.peers
    names = [f"p{number:04}" for number in range(RELAYS)]
    async with Fleet(HEARTBEAT_S) as fleet, watching(two.url) as at_two, watching(three.url) as at_three:
        for number, name in enumerate(names):
            fleet.join(trio.peers[number % 3], name, weight=number % 7, labels={"n": str(number)})
        await trio.agreed(trio.peers, *names)
        lists = await asyncio.gather(*(peer.raw_list() for peer in trio.peers))
        assert len({bytes(each.pools) for each in lists}) == 1
        took_s: list[float] = []
        for weight in range(CHANGES):
            told = (len(at_two.told), len(at_three.told))
            started_s = time.monotonic()
            await one.register("probe", relay_id="probe", weight=weight)
            for watcher, since in zip((at_two, at_three), told, strict=True):
                await watcher.wait(lambda each, weight=weight: _is_probe(each.event, weight), since=since)  # type: ignore[misc]
            took_s.append(time.monotonic() - started_s)
        assert statistics.median(took_s) < TOLD_WITHIN_S * MARGIN, took_s
        for watcher in (at_two, at_three):
            assert watcher.movements == ["added"] * (RELAYS + 1) + ["changed"] * (CHANGES - 1)


def _is_probe(event: dict[str, object], weight: int) -> bool:
    pool = event.get("pool")
    return isinstance(pool, dict) and pool["dgd_name"] == "probe" and pool["weight"] == weight


async def test_p1_a_pool_that_leaves_is_gone_everywhere_with_its_reason_and_one_that_dies_after_its_lease(
    trio: Cluster,
) -> None:
    one, two, three = trio.peers
    async with Fleet(HEARTBEAT_S) as fleet, watching(two.url) as at_two, watching(three.url) as at_three:
        fleet.join(one, "leaves", "dies")
        await trio.agreed(trio.peers, "dies", "leaves")
        await fleet.leave("leaves", at=three)
        for watcher in (at_two, at_three):
            told = (await watcher.wait_type("removed", TOLD_WITHIN_S * MARGIN * 3)).event
            assert (told["cause"], told["reason"], told["key"]["dgd_name"]) == (
                "deregistered",
                "relay_stopping",
                "leaves",
            )
        for peer in trio.peers:
            status, _ = await peer.register("leaves", fleet.relay_id("leaves"))
            assert status == 409, "a late heartbeat does not bring it back, wherever it comes"
        await fleet.stop("dies")
        started_s = time.monotonic()
        for watcher in (at_two, at_three):
            gone = await watcher.wait(lambda each: each.event.get("key", {}).get("dgd_name") == "dies")
            assert gone.event["cause"] == "expired"
        assert LEASE_S - HEARTBEAT_S - 0.1 <= time.monotonic() - started_s <= LEASE_S + TOLD_WITHIN_S * MARGIN * 3


class Seen:
    """What an instance listed, asked over and over, with the moment before each question."""

    def __init__(self) -> None:
        self.lists: list[tuple[float, RawList]] = []

    async def until_complete(self, peer: Peer, timeout_s: float) -> float:
        async def complete() -> bool:
            asked_s = time.monotonic()
            self.lists.append((asked_s, await peer.raw_list()))
            return self.lists[-1][1].complete

        await eventually(complete, timeout_s)
        return self.lists[-1][0]


async def test_p2_one_that_restarts_is_complete_at_once_with_its_own_former_pools(tmp_path: Path) -> None:
    async with peers(tmp_path, 3, lease_s=LONG_LEASE_S) as trio, Fleet(HEARTBEAT_S) as fleet:
        for peer, names in zip(trio.peers, (("a", "b"), ("c", "d"), ("e", "f")), strict=True):
            fleet.join(peer, *names)
        await trio.agreed(trio.peers, *"abcdef")
        one, two, three = trio.peers
        await fleet.stop("c", "d")
        await two.program.kill()
        await two.program.start()
        ready_s, seen = time.monotonic(), Seen()
        complete_s = await seen.until_complete(two, LONG_LEASE_S)
        assert complete_s - ready_s < HEALED_WITHIN_S * MARGIN < LONG_LEASE_S * 0.6
        assert await two.lists(*"abcdef"), "without a relay of its own having come back"
        assert bytes(seen.lists[-1][1].pools) == bytes((await one.raw_list()).pools), "its first complete list"
        assert await trio.agreed((one, three), *"abcdef") < HEALED_WITHIN_S * MARGIN


async def test_p2_when_all_restart_at_once_none_is_complete_before_one_lease(trio: Cluster) -> None:
    names = [f"p{number}" for number in range(9)]
    async with Fleet(HEARTBEAT_S) as fleet:
        for number, name in enumerate(names):
            fleet.join(trio.peers[number % 3], name)
        await trio.agreed(trio.peers, *names)
        await asyncio.gather(*(peer.program.kill() for peer in trio.peers))
        began_s = time.monotonic()
        await asyncio.gather(*(peer.program.start() for peer in trio.peers))
        ready_s = time.monotonic()
        seen = [Seen() for _ in trio.peers]
        complete_s = await asyncio.gather(
            *(each.until_complete(peer, LEASE_S * MARGIN) for each, peer in zip(seen, trio.peers, strict=True))
        )
        assert min(complete_s) >= began_s + LEASE_S
        assert max(complete_s) <= ready_s + LEASE_S + HEALED_WITHIN_S * MARGIN
        first = {bytes(each.lists[-1][1].pools) for each in seen}
        assert first == {bytes((await trio.peers[0].raw_list()).pools)}, "the first complete lists hold every pool"
        assert await trio.agreed(trio.peers, *names) < HEALED_WITHIN_S * MARGIN


async def test_p5_a_relay_that_hops_at_every_heartbeat_is_one_pool_that_does_not_flicker(trio: Cluster) -> None:
    one, two, three = trio.peers
    async with watching(one.url) as at_one, watching(two.url) as at_two, watching(three.url) as at_three:
        for beat in range(12):
            await trio.peers[beat % 3].register("a", relay_id="hops")
            if beat:
                for peer in trio.peers:
                    assert await peer.lists("a")
            await asyncio.sleep(HEARTBEAT_S * 0.8)
        for watcher in (at_one, at_two, at_three):
            assert watcher.movements == ["added"]
            assert not any(told.type in ("snapshot", "completeness") for told in watcher.told[1:])
        for peer in trio.peers:
            assert (await peer.get("/pools/c/n/a"))[1].get("conflict") is None
