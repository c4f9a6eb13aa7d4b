"""The program ``poolmuster serve``: time on real clocks with room to spare, refusals, and an orderly end."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from poolmuster.client import AsyncClient
from tests.support.ports import free_port
from tests.support.process import Program, poolmuster
from tests.support.variables import variable
from tests.support.watching import watching

pytestmark = pytest.mark.integration

LEASE_S, HEARTBEAT_S = 3.0, 1.0
BOUND_S = 1.0
"""How late a lease may end. On a busy machine the tests allow three times as much."""

PAUSE_S = 60.0 if variable("SOAK_S") else 8.0


def serving(folder: Path, port: int, *arguments: str, env: dict[str, str] | None = None) -> Program:
    return poolmuster(
        "serve",
        *("--listen", f"127.0.0.1:{port}"),
        *("--lease-duration-secs", str(LEASE_S), "--heartbeat-interval-secs", str(HEARTBEAT_S)),
        *arguments,
        folder=folder,
        env=env,
        ready_url=f"http://127.0.0.1:{port}/health/ready",
    )


class Service:
    """The program and its address."""

    def __init__(self, program: Program, url: str, session: aiohttp.ClientSession) -> None:
        self.program = program
        self.url = url
        self.session = session

    async def register(self, name: str, **facts: Any) -> int:
        document = {"cluster_id": "c", "namespace": "n", "dgd_name": name, **facts}
        async with self.session.post(f"{self.url}/pools", json=document) as answer:
            return answer.status

    async def get(self, path: str = "/pools") -> dict[str, Any]:
        async with self.session.get(self.url + path) as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def names(self) -> list[str]:
        return [pool["dgd_name"] for pool in (await self.get())["pools"]]

    async def until_complete(self) -> None:
        async with asyncio.timeout(5 * LEASE_S):
            while not (await self.get())["complete"]:
                await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def relays(self, *names: str) -> AsyncIterator[None]:
        """Heartbeats of these pools, which go on whatever becomes of the service."""

        async def beat() -> None:
            while True:
                for name in names:
                    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                        async with asyncio.timeout(HEARTBEAT_S):
                            await self.register(name)
                await asyncio.sleep(HEARTBEAT_S / 2)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    port = free_port()
    async with (
        serving(tmp_path, port, "--shutdown-delay-secs", "1.5") as program,
        aiohttp.ClientSession() as session,
    ):
        yield Service(program, f"http://127.0.0.1:{port}", session)


async def test_a_lease_ends_after_its_time_and_not_before(service: Service) -> None:
    async with watching(service.url) as watcher:
        sent_s = time.time()
        assert await service.register("a") == 201
        answered_s = time.time()
        removed = await watcher.wait_type("removed")
        assert removed.event["cause"] == "expired"
        assert sent_s + LEASE_S - 0.01 <= removed.at_ms / 1000 <= answered_s + LEASE_S + 3 * BOUND_S


async def test_a_list_is_complete_after_one_lease_and_says_when_that_will_be(tmp_path: Path) -> None:
    port = free_port()
    started_s = time.monotonic()
    async with serving(tmp_path, port) as program, aiohttp.ClientSession() as session:
        service = Service(program, f"http://127.0.0.1:{port}", session)
        ready_s = time.monotonic()
        (source,) = (found := await service.get())["sources"]
        assert not found["complete"]
        assert (source["reason"], source["state"]) == ("warming_up", "stale")
        assert 0 < source["clears_in_ms"] <= LEASE_S * 1000
        await service.until_complete()
        assert time.monotonic() >= started_s + LEASE_S
        assert time.monotonic() <= ready_s + LEASE_S + 3 * BOUND_S


@pytest.mark.parametrize("orderly", [True, False], ids=["SIGTERM", "SIGKILL"])
async def test_a_restart_shows_no_burst_of_removals_and_a_clients_usable_set_stays_full(
    tmp_path: Path, orderly: bool
) -> None:
    port = free_port()
    names = [f"p{number}" for number in range(20)]
    async with (
        serving(tmp_path, port) as program,
        aiohttp.ClientSession() as session,
        contextlib.AsyncExitStack() as stack,
    ):
        service = Service(program, f"http://127.0.0.1:{port}", session)
        await stack.enter_async_context(service.relays(*names))
        client = await stack.enter_async_context(AsyncClient(service.url))
        follower = await stack.enter_async_context(client.follow())
        await service.until_complete()
        async with asyncio.timeout(5 * LEASE_S):
            while len(follower.usable) < len(names) or not follower.complete:
                await asyncio.sleep(0.05)
        before = str(follower.revision).partition(".")[0]

        def knows_the_new_one() -> bool:
            return follower.complete and not str(follower.revision).startswith(before)

        await (program.terminate() if orderly else program.kill())
        restart = asyncio.create_task(program.start())
        async with asyncio.timeout(10 * LEASE_S):
            while not knows_the_new_one():
                assert len(follower.usable) == len(names)
                await asyncio.sleep(0.02)
        await restart
        assert len(follower.usable) == len(names)
        changes = await service.get("/changes")
        assert not [change for change in changes["changes"] if change["type"] == "removed"]


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_a_process_that_was_stopped_loses_no_pool_and_is_complete_only_when_it_knows(service: Service) -> None:
    async with service.relays("a", "b"), watching(service.url) as watcher:
        await service.until_complete()
        await service.program.stop_cont(PAUSE_S)
        found = await service.get()
        assert [pool["dgd_name"] for pool in found["pools"]] == ["a", "b"]
        assert not found["complete"]
        continued_s = time.monotonic()
        await service.until_complete()
        assert time.monotonic() - continued_s >= LEASE_S - 0.5
        assert await service.names() == ["a", "b"]
        assert "removed" not in watcher.movements


async def test_the_end_is_orderly(service: Service) -> None:
    """First not ready, but serving; then watchers are told, connections closed, and it is out in five seconds."""
    url, program = service.url, service.program
    async with watching(url) as watcher:
        async with service.session.get(f"{url}/pools") as answer:
            assert answer.headers.get("connection") != "close"
        began_s = time.monotonic()
        ending = asyncio.create_task(program.terminate())
        async with asyncio.timeout(5):
            while True:
                async with service.session.get(f"{url}/health/ready") as answer:
                    if answer.status == 503:
                        break
                await asyncio.sleep(0.02)
        assert answer.headers["connection"] == "close"
        assert (await service.get("/status"))["instance"]["stopping"] is True
        assert await service.register("late") == 201
        assert (await watcher.wait_type("added")).event["pool"]["dgd_name"] == "late"
        closing = await watcher.wait_type("closing")
        assert closing.event["reason"] == "shutdown"
        assert time.monotonic() - began_s >= 1.5 - 0.1
        assert await ending == 0
        assert time.monotonic() - began_s <= 1.5 + 5
    with pytest.raises(aiohttp.ClientError):
        await service.get()


async def test_a_slow_request_does_not_hold_the_end_up(service: Service) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", int(service.url.rpartition(":")[2]))
    writer.write(
        b"POST /pools HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    )
    await writer.drain()
    began_s = time.monotonic()
    assert await service.program.terminate() == 0
    assert time.monotonic() - began_s <= 1.5 + 5
    writer.close()


async def ends(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """Run ``poolmuster serve`` that should not come to serve. Returns how it ended and what it said."""
    program = poolmuster("serve", *arguments, folder=folder, env=env)
    async with program:
        code = await program.wait()
    return code, program.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--listen", "0.0.0.0:0"), "--allow-anonymous"),
        (("--listen", ":0"), "--allow-anonymous"),
        (("--listen", "[::]:0"), "--allow-anonymous"),
        (("--listen", "service.localhost:0"), "--allow-anonymous"),
        (("--listen", "127.0.0.1"), "--listen"),
        (("--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"), "--listen"),
        (("--lease-duration-secs", "5"), "--heartbeat-interval-secs"),
        (("--heartbeat-interval-secs", "15"), "--lease-duration-secs"),
        (("--heartbeat-interval-secs", "0"), "--heartbeat-interval-secs"),
        (("--heartbeat-interval-secs", "nan"), "--heartbeat-interval-secs"),
        (("--lease-duration-secs", "86401"), "--lease-duration-secs"),
        (("--router", "r1=ftp://x"), "--router"),
        (("--router", "r1"), "--router"),
        (("--router", "r1=http://x", "--router", "r1=http://y"), "--router"),
        (("--limit-pools", "0"), "--limit-pools"),
        (("--registration-storage", "paper"), "--registration-storage"),
        (("--no-such-flag",), "--no-such-flag"),
    ],
)
async def test_a_mistake_is_one_line_that_names_the_flag_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    code, lines = await ends(tmp_path, *arguments)
    assert code == 2
    assert len(lines) == 1
    assert says in lines[0]


async def test_a_mistake_in_a_variable_is_one_too(tmp_path: Path) -> None:
    code, lines = await ends(tmp_path, "--listen", "127.0.0.1:0", env={"POOLMUSTER_LEASE_DURATION_SECS": "soon"})
    assert code == 2
    assert len(lines) == 1
    assert "LEASE_DURATION_SECS" in lines[0].upper().replace("-", "_")


async def test_a_port_in_use_is_one_line_and_exit_code_1(service: Service, tmp_path: Path) -> None:
    address = service.url.removeprefix("http://")
    code, lines = await ends(tmp_path, "--listen", address)
    assert code == 1
    assert len(lines) == 1
    assert address in lines[0]


async def test_variables_set_flags_flags_win_and_what_kubernetes_injects_is_not_set(tmp_path: Path) -> None:
    port = free_port()
    env = {
        "POOLMUSTER_LEASE_DURATION_SECS": "60",
        "POOLMUSTER_LIMIT_POOLS": "7",
        "POOLMUSTER_ROUTER": "r1=http://one r2=http://two",
        "POOLMUSTER_SHUTDOWN_DELAY_SECS": "tcp://10.0.0.1:80",
        "POOLMUSTER_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "POOLMUSTER_LEASE_DURATION": "typo",
    }
    async with serving(tmp_path, port, env=env) as program, aiohttp.ClientSession() as session:
        status = await Service(program, f"http://127.0.0.1:{port}", session).get("/status")
        routers = await Service(program, f"http://127.0.0.1:{port}", session).get("/routers")
        await program.terminate()
    assert status["lease_ms"] == LEASE_S * 1000
    assert status["limits"]["pools"] == 7
    assert routers["routers"] == [{"id": "r1", "url": "http://one"}, {"id": "r2", "url": "http://two"}]
    named = [line for line in program.stderr.splitlines() if "POOLMUSTER_" in line]
    assert len(named) == 1
    assert "POOLMUSTER_LEASE_DURATION" in named[0]


async def test_it_serves_other_machines_when_it_is_told_to_and_says_so(tmp_path: Path) -> None:
    port = free_port()
    program = poolmuster(
        "serve",
        "--listen",
        f":{port}",
        "--allow-anonymous",
        folder=tmp_path,
        ready_url=f"http://127.0.0.1:{port}/health/live",
    )
    async with program, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/pools", headers={"Host": "pools.example.com"}) as answer:
            assert answer.status == 200
        async with session.get(f"http://[::1]:{port}/pools") as answer:
            assert answer.status == 200
    assert "--allow-anonymous" in program.stderr


async def test_allowing_anyone_does_not_open_a_service_of_this_machine_to_other_names(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/pools"
    async with (
        poolmuster(
            *("serve", "--listen", f"127.0.0.1:{port}", "--allow-anonymous"),
            folder=tmp_path,
            ready_url=f"http://127.0.0.1:{port}/health/live",
        ),
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Host": "evil.example"}) as answer,
    ):
        assert answer.status == 421


async def test_a_limit_of_open_files_below_that_of_connections_is_told(tmp_path: Path) -> None:
    port = free_port()
    command = f"ulimit -n 1000; exec {sys.executable} -m poolmuster serve --listen 127.0.0.1:{port}"
    ready_url = f"http://127.0.0.1:{port}/health/live"
    async with Program("bash", "-c", command, folder=tmp_path, ready_url=ready_url) as program:
        assert "--limit-connections" in program.stderr
        assert "10256" in program.stderr


async def test_an_anonymous_service_of_this_machine_answers_to_loopback_names_only(service: Service) -> None:
    for host, status in [
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::1]", 200),
        ("evil.example.com", 421),
        ("", 421),
    ]:
        async with service.session.get(f"{service.url}/pools", headers={"Host": host}) as answer:
            assert answer.status == status, host


async def test_logs_are_json_where_nobody_looks(service: Service) -> None:
    await service.register("a")
    lines = [json.loads(line) for line in service.program.stderr.splitlines()]
    assert any("Listening" in str(line) for line in lines)
