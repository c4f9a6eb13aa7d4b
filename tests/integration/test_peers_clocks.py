"""Time between instances: clocks that are hours apart, and messages that come late."""

import asyncio
import functools
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.fleet import Fleet
from tests.support.instances import eventually
from tests.support.lan import up_longer
from tests.support.parts import FAKETIME, TIME_NAMESPACE
from tests.support.peers import (
    HEARTBEAT_S,
    INCOMPLETE_WITHIN_S,
    LEASE_S,
    MARGIN,
    PORT,
    TOLD_WITHIN_S,
    Cluster,
    Peer,
    cluster,
)
from tests.support.tcp_proxy import Proxy, always, at_once
from tests.support.variables import variable
from tests.support.watching import Watcher, watching

pytestmark = pytest.mark.integration

LATE_LEASE_S = 6.0
HELD_S = 20.0 if variable("SOAK_S") else 8.0
LATER_S = 4.0
"""Less than a lease, so that the pool lives, and more than a slack."""

HOUR_S = 3600
POLLED_WITHIN_S = 1.2
SECONDS_TO_TRY_STREAMS = 10.0


def wall_clock(offset: str) -> dict[str, str]:
    """The variables by which a program's wall clock is off."""
    library = str(FAKETIME.require())
    return {"LD_PRELOAD": library, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


async def test_p7_clocks_that_are_hours_apart_make_no_difference(tmp_path: Path) -> None:
    """Wall clocks and monotonic clocks both: one started an hour later than the others, by their clocks."""
    TIME_NAMESPACE.require()
    async with cluster(tmp_path) as found:
        machines = [await found.machine() for _ in range(3)]
        found.name(*(machine.address for machine in machines))
        plain = await found.start(machines[0])
        ahead = await found.start(machines[1], env=wall_clock("+3600"), before=up_longer(HOUR_S))
        behind = await found.start(machines[2], env=wall_clock("-3600"), before=up_longer(100 * HOUR_S))
        assert _clocks_apart([await _status_at_ms(peer) for peer in (plain, ahead, behind)])
        await _live_and_let_die(found)
        for peer in found.peers:
            await peer.program.kill()
            await peer.program.start()
            await found.agreed(found.peers)
        await _live_and_let_die(found)


async def _status_at_ms(peer: Peer) -> int:
    name = peer.machine.address  # what left at one instance may not come back at another under the same id
    await peer.register(name, relay_id=name)
    found = (await peer.get(f"/pools/c/n/{name}"))[1]
    assert await peer.leave(name) == 204
    ends_at_ms: int = found["lease"]["ends_at_ms"]
    return ends_at_ms


def _clocks_apart(ends_at_ms: list[int]) -> bool:
    ordered = sorted(ends_at_ms)
    return all(later - earlier > 3_500_000 for earlier, later in itertools.pairwise(ordered))


async def _live_and_let_die(found: Cluster) -> None:
    async with Fleet(HEARTBEAT_S) as fleet:
        names = ("a", "b", "c")
        for peer, name in zip(found.peers, names, strict=True):
            fleet.join(peer, name)
        await found.agreed(found.peers, *names)
        async with watching(found.peers[0].url) as one, watching(found.peers[1].url) as two:
            await asyncio.sleep(LEASE_S * 2)
            assert one.movements == two.movements == []
            await fleet.stop(*names)
            started_s = time.monotonic()
            for peer in found.peers:
                await eventually(lambda peer=peer: peer.lists(), LEASE_S * MARGIN)  # type: ignore[misc]
            took_s = time.monotonic() - started_s
            assert LEASE_S - HEARTBEAT_S - 0.1 <= took_s <= LEASE_S + TOLD_WITHIN_S * MARGIN * 3


class Late:
    """An instance that hears another only through a proxy."""

    def __init__(self, found: Cluster, hears: Peer, tells: Peer, proxy: Proxy) -> None:
        self.found = found
        self.hears = hears
        self.tells = tells
        self.proxy = proxy


@pytest.fixture
async def late(tmp_path: Path) -> AsyncIterator[Late]:
    async with cluster(tmp_path, LATE_LEASE_S) as found:
        hears, tells = [await found.machine() for _ in range(2)]
        found.name(hears.address, tells.address)
        proxy = Proxy(always(functools.partial(tells.connect, tells.inner, PORT)))
        async with proxy.serving(tells.listener(PORT)):
            one = await found.start(hears)
            two = await found.start(tells, address=tells.inner)
            await found.agreed(found.peers)
            yield Late(found, one, two, proxy)


def held(for_s: float) -> Callable[[], float]:
    """All that is sent within the next ``for_s`` is kept until then, and comes at once."""
    until_s = time.monotonic() + for_s
    return lambda: max(0.0, until_s - time.monotonic())


def later_and_later(to_s: float) -> Callable[[], float]:
    """Delays that grow by half of the time gone by: nothing ever falls silent for long."""
    since_s = time.monotonic()
    return lambda: min(to_s, (time.monotonic() - since_s) / 2)


@pytest.mark.soak
@pytest.mark.parametrize(("way", "late_s"), [(held, HELD_S), (later_and_later, LATER_S)])
async def test_p7_what_is_delivered_late_does_not_lengthen_a_lease(
    late: Late, way: Callable[[float], Callable[[], float]], late_s: float
) -> None:
    async with Fleet(HEARTBEAT_S) as fleet, watching(late.hears.url) as watcher:
        fleet.join(late.tells, "a")
        await late.found.agreed(late.found.peers, "a")
        await watcher.wait_type("added")
        await asyncio.sleep(HEARTBEAT_S)
        late.proxy.late_s = way(late_s)
        if way is later_and_later:
            await asyncio.sleep(2 * late_s)
            assert watcher.movements == ["added"], "what is late, but not by a lease, lives"
        await fleet.stop("a")
        stopped_s = time.monotonic()
        await eventually(lambda: _is_gone(late.hears), LATE_LEASE_S * MARGIN)
        assert time.monotonic() - stopped_s <= LATE_LEASE_S + TOLD_WITHIN_S * MARGIN * 3
        since = len(watcher.told)
        while time.monotonic() - stopped_s < late_s + LATE_LEASE_S:
            await asyncio.sleep(0.1)
            assert await _is_gone(late.hears), "what comes late brings nothing back"
        assert "added" not in [told.type for told in watcher.told[since:]]
        late.proxy.late_s = at_once
        await late.found.agreed(late.found.peers, timeout_s=LATE_LEASE_S * MARGIN + late_s)


async def _is_gone(peer: Peer) -> bool:
    return (await peer.pools())[0] == []


async def test_where_streams_do_not_come_through_reading_once_a_second_does(late: Late) -> None:
    async with watching(late.hears.url) as watcher, Fleet(HEARTBEAT_S) as fleet:
        late.proxy.withholds = b"/stream"
        late.proxy.cut()
        fleet.join(late.tells, "a")
        await late.found.agreed(late.found.peers, "a")
        took_s: list[float] = []
        until_s = time.monotonic() + 2 * LATE_LEASE_S
        while time.monotonic() < until_s:
            since, started_s = len(watcher.told), time.monotonic()
            await late.tells.register("b", relay_id="b", weight=len(took_s))
            await watcher.wait(lambda told: told.type in ("added", "changed"), since=since)
            took_s.append(time.monotonic() - started_s)
            assert await late.hears.complete()
            await asyncio.sleep(0.13)
        assert statistics.median(took_s) < POLLED_WITHIN_S
        assert max(took_s) < POLLED_WITHIN_S * MARGIN
        assert "removed" not in watcher.movements
        late.proxy.withholds = None
        await eventually(lambda: _is_told_at_once(late, watcher), SECONDS_TO_TRY_STREAMS * MARGIN)


async def _is_told_at_once(late: Late, watcher: Watcher) -> bool:
    since, started_s = len(watcher.told), time.monotonic()
    await late.tells.register("c", relay_id="c", weight=since)
    await watcher.wait(lambda told: told.type in ("added", "changed"), since=since)
    return time.monotonic() - started_s < TOLD_WITHIN_S


async def test_p7_an_instance_that_is_told_everything_late_is_not_complete(late: Late) -> None:
    late.proxy.late_s = later_and_later(LATER_S)
    async with asyncio.timeout(LATER_S * 2 + INCOMPLETE_WITHIN_S * MARGIN):
        while await late.hears.complete():
            await asyncio.sleep(0.05)
