"""A table that is slow, broken, silent or strange, and clocks that are wrong.

``POOLMUSTER_FAULT_S`` is for how long each fault lasts; `make soak` takes five minutes.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from poolmuster.sources.dynamodb.items import Attributes
from tests.support.fault_proxy import Answer, Call, Fault, FaultProxy, error, fault_proxy, refuse_old_signatures
from tests.support.instances import LEASE_S, Server, eventually, instance, renewing
from tests.support.parts import FAKETIME
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.registrations import document, registration
from tests.support.table_server import NOWHERE, Table, live_attributes
from tests.support.variables import variable
from tests.support.watching import Watcher, watching

pytestmark = pytest.mark.integration

MARGIN = 3.0
STALE_S, HEALS_S, POST_S = 3.0 * MARGIN, 2.0 * MARGIN, 1.5 * MARGIN
# Longer than a lease: otherwise nothing would be lost by a fault in any case.
FAULT_S = float(variable("FAULT_S") or LEASE_S + 3)
HOUR_MS = 3_600_000
ROLE = "arn:aws:sts::111122223333:assumed-role/poolmuster/i-1"


@pytest.fixture
async def proxy(table: Table) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(table.server.url) as found:
        yield found


@pytest.fixture
async def server(tmp_path: Path, table: Table, proxy: FaultProxy) -> AsyncIterator[Server]:
    """An instance that reaches its table through the proxy."""
    async with instance(tmp_path / "behind", table.name, proxy.url) as found:
        await eventually(lambda: complete(found))
        yield found


async def complete(server: Server) -> bool:
    return (await server.pools())[1]


async def incomplete(server: Server) -> bool:
    return not (await server.pools())[1]


async def reason(server: Server) -> str | None:
    (source,) = [source for source in (await server.sources()).values() if source["kind"] == "table"]
    found: str | None = source["reason"]
    return found


# Faults


async def _goes_through(server: Server, proxy: FaultProxy, fault: Fault, watcher: Watcher) -> None:
    before = await server.pools()
    proxy.fault = fault
    started_s = time.monotonic()
    took_s = await eventually(lambda: incomplete(server), STALE_S)
    asked_s = time.monotonic()
    status, headers = await server.register("new")
    assert (status, "Retry-After" in headers) == (503, True)
    assert time.monotonic() - asked_s <= POST_S
    await asyncio.sleep(max(0, FAULT_S - (time.monotonic() - started_s)))
    assert await server.pools() == (before[0], False), "the list stays as it was"
    assert await reason(server) in _REASONS[fault]
    proxy.fault = Fault.NONE
    healed_s = await eventually(lambda: complete(server), HEALS_S)
    print(f"{fault}: incomplete after {took_s:.2f} s, complete {healed_s:.2f} s after healing")
    await asyncio.sleep(1.5)
    assert [name for name in (await server.pools())[0] if name != "new"] == before[0]
    assert "removed" not in watcher.movements


_REASONS: dict[Fault, set[str]] = {
    Fault.DELAY: {"timeout"},
    Fault.CUT: {"unreachable"},
    Fault.BLACK_HOLE: {"timeout"},
    Fault.DRIP: {"timeout"},
    Fault.RESET: {"unreachable"},
    Fault.ERROR_500: {"unreachable"},
    Fault.THROTTLING: {"throttled"},
}


@pytest.mark.soak
@pytest.mark.timeout(int(FAULT_S) + 120)
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
async def test_d4_no_fault_of_the_table_costs_a_live_pool_then_or_by_the_first_good_read_after(
    server: Server, proxy: FaultProxy, fault: Fault
) -> None:
    async with renewing(server, "a", "b"):
        await eventually(lambda: _lists(server, "a", "b"))
        async with watching(server.url) as watcher:
            await _goes_through(server, proxy, fault, watcher)


async def _lists(server: Server, *names: str) -> bool:
    return await server.pools() == (list(names), True)


async def test_d4_before_the_first_good_read_there_is_no_list_and_the_answer_says_why(
    tmp_path: Path, table: Table, proxy: FaultProxy
) -> None:
    proxy.fault = Fault.THROTTLING
    async with instance(tmp_path, table.name, proxy.url) as server:
        await eventually(lambda: _reason_is(server, "throttled"))
        async with server.session.get("/pools") as answer:
            assert answer.status == 503
            assert "Retry-After" in answer.headers
        proxy.fault = Fault.NONE
        await eventually(lambda: complete(server), HEALS_S)


async def _reason_is(server: Server, wanted: str) -> bool:
    return await reason(server) == wanted


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (error("AccessDeniedException", f"User: {ROLE} is not authorized to perform: dynamodb:Query"), "access_denied"),
        (error("ResourceNotFoundException"), "table_missing"),
        (error("ExpiredTokenException"), "credentials_expired"),
        (error("RequestLimitExceeded"), "throttled"),
        (Answer(200, [1]), "bad_answer"),
    ],
)
async def test_l8_each_kind_of_trouble_says_what_it_is_everywhere(
    tmp_path: Path, table: Table, proxy: FaultProxy, answer: Answer, wanted: str
) -> None:
    proxy.decide = lambda call: answer
    async with instance(tmp_path, table.name, proxy.url) as server:
        await eventually(lambda: _reason_is(server, wanted), STALE_S)
        for path in ("/health/ready", "/pools"):
            async with server.session.get(path) as refused:
                assert refused.status == 503
                said = await refused.text()
                assert wanted in said
                assert ROLE not in said
        async with server.session.post("/pools", json=document("x")) as refused:
            assert refused.status == 503
            said = await refused.text()
            assert wanted in said
            assert ROLE not in said
        await server.program.wait_line(wanted)
        assert (ROLE in server.program.stderr) == (wanted == "access_denied")
        assert ROLE not in str(await server.sources())


async def test_d4_microburst_throttles_and_slows_the_table_down(tmp_path: Path, table: Table) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = Program(
        sys.executable,
        str(Path(sys.executable).with_name("microburst")),
        *("--host", "127.0.0.1", "--port", str(port), "--upstream", table.server.url),
        folder=tmp_path,
        env=NOWHERE,
        ready_url=f"{url}/_microburst/rules",
        name="microburst",
    )
    code = "ProvisionedThroughputExceededException"
    async with program, instance(tmp_path, table.name, url) as server, aiohttp.ClientSession(url) as control:
        await eventually(lambda: complete(server))
        for rule, wanted in (({"error": {"code": code}}, "throttled"), ({"latency": 4000}, "timeout")):
            async with control.post("/_microburst/rules", json=[{"service": "dynamodb", **rule}]) as answer:
                assert answer.status < 300, await answer.text()
            await eventually(lambda wanted=wanted: _reason_is(server, wanted), STALE_S)  # type: ignore[misc]
            async with control.post("/_microburst/rules", json=[]) as answer:
                assert answer.status < 300, await answer.text()
            await eventually(lambda: complete(server), HEALS_S)


# Pages and items


def _many(count: int) -> list[Attributes]:
    ends_ms = int(time.time() * 1000) + 86_000_000
    return [
        live_attributes(
            registration(f"p{number:04}", "r", labels={"x": "y" * 800}),
            ends_ms=ends_ms,
            lease_ms=86_000_000,
            writer="-/b",
        )
        for number in range(count)
    ]


async def test_d3_more_than_a_page_a_page_that_fails_or_comes_twice_and_items_that_are_strange(
    tmp_path: Path, table: Table, proxy: FaultProxy
) -> None:
    items = _many(2000)
    await asyncio.to_thread(table.put_all, items)
    broken: Attributes = items[0] | {"sk": {"S": "c#n#broken"}, "registration": {"S": "{"}}
    table.put(broken)
    table.put_foreign(registration("foreign", "r"), int(time.time() * 1000) + 3_600_000)
    async with instance(tmp_path, table.name, proxy.url, lease_s=60) as server:
        await eventually(lambda: _count_is(server, 2001), 20)
        pages = proxy.count("Query")
        assert pages > 1, "it is more than a page"
        assert await server.metric("poolmuster_table_skipped_items") == 1
        assert server.program.stderr.count("An item of the table is skipped") == 1

        def second_page_fails(call: Call) -> Fault | Answer:
            return Fault.ERROR_500 if "ExclusiveStartKey" in call.request else Fault.NONE

        proxy.decide = second_page_fails
        await eventually(lambda: incomplete(server), STALE_S)
        assert len((await server.pools())[0]) == 2001
        proxy.decide = lambda call: Fault.NONE
        await eventually(lambda: complete(server), HEALS_S)

        def same_key_again(call: Call, document: dict[str, Any]) -> dict[str, Any]:
            start = call.request.get("ExclusiveStartKey")
            return {**document, "LastEvaluatedKey": start} if start else document

        proxy.rewrite = same_key_again
        await eventually(lambda: incomplete(server), STALE_S)
        assert await reason(server) == "bad_answer"
        assert len((await server.pools())[0]) == 2001
        proxy.rewrite = lambda call, document: document
        await eventually(lambda: _count_is(server, 2001), HEALS_S)


async def _count_is(server: Server, count: int) -> bool:
    names, whole = await server.pools()
    return whole and len(names) == count


# Clocks


@pytest.mark.parametrize("error_ms", [HOUR_MS, -HOUR_MS])
async def test_d5_a_foreign_writer_an_hour_off_keeps_its_pool_alive_and_no_longer(
    server: Server, table: Table, error_ms: int
) -> None:
    async def beat() -> None:
        while True:
            ends_ms = int(time.time() * 1000) + error_ms + round(LEASE_S * 1000)
            await asyncio.to_thread(table.put_foreign, registration("a"), ends_ms)
            await asyncio.sleep(2)

    async with watching(server.url) as watcher:
        beating = asyncio.create_task(beat())
        await watcher.wait_type("added")
        await asyncio.sleep(LEASE_S + 2)
        assert watcher.movements == ["added"]
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating
        started_s = time.monotonic()
        gone = await watcher.wait_type("removed")
        assert gone.event["cause"] == "expired"
        assert time.monotonic() - started_s <= LEASE_S + 1.2 * MARGIN


@pytest.mark.parametrize("offset", ["+3600", "-3600"])
async def test_d5_an_instance_an_hour_off_lists_what_lives_and_its_pools_live_elsewhere(
    tmp_path: Path, table: Table, server: Server, offset: str
) -> None:
    env = _faketime(offset)
    async with instance(tmp_path / "off", table.name, table.server.url, env=env) as off:
        await eventually(lambda: complete(off))
        async with renewing(server, "a"), renewing(off, "b"):
            for each in (server, off):
                await eventually(lambda each=each: _lists(each, "a", "b"))  # type: ignore[misc]
            await asyncio.sleep(LEASE_S + 1)
            for each in (server, off):
                assert await _lists(each, "a", "b")
        for each in (server, off):
            await eventually(lambda each=each: _lists(each), LEASE_S + 1.2 * MARGIN)  # type: ignore[misc]
        await off.program.wait_line("clock is off")


def _faketime(offset: str) -> dict[str, str]:
    library = str(FAKETIME.require())
    return {"LD_PRELOAD": library, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


async def test_d5_a_signature_refused_for_its_time_is_clock_skew(
    tmp_path: Path, table: Table, proxy: FaultProxy
) -> None:
    proxy.decide = refuse_old_signatures()
    async with instance(tmp_path, table.name, proxy.url, env=_faketime("+3600")) as server:
        await eventually(lambda: _reason_is(server, "clock_skew"))
        status, _ = await server.register("a")
        assert status == 503


@pytest.mark.soak
@pytest.mark.timeout(int(FAULT_S) + 120)
async def test_d5_a_reader_that_was_stopped_loses_no_live_pool(tmp_path: Path, table: Table, server: Server) -> None:
    async with instance(tmp_path / "stopped", table.name, table.server.url) as stopped:
        async with renewing(server, "a"):
            await eventually(lambda: _lists(stopped, "a"))
            async with watching(stopped.url) as watcher:
                await stopped.program.stop_cont(FAULT_S)
                await eventually(lambda: _lists(stopped, "a"), HEALS_S)
                await asyncio.sleep(2)
                assert watcher.movements == []
        await eventually(lambda: _lists(stopped), LEASE_S + 3 * MARGIN)


async def test_never_two_reads_at_once_and_at_most_four_extra_a_second(server: Server, proxy: FaultProxy) -> None:
    before, started_s = proxy.count("Query"), time.monotonic()
    for number in range(40):
        await server.register(f"p{number}")
    took_s = time.monotonic() - started_s
    assert proxy.count("Query") - before <= 5 * (took_s + 1)
    assert proxy.most_reading == 1
