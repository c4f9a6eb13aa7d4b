"""The relay between a real service and a server in a process of its own."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.model_server import ModelServer, model_server
from tests.support.ports import free_port
from tests.support.process import Program, poolmuster
from tests.support.watching import Watcher, watching

pytestmark = pytest.mark.integration

LEASE_S = 3.0
HEARTBEAT_S = 1.0
SOON_S = 10.0
PROBES = ("--probe-interval-secs", "0.2", "--unhealthy-after", "2")


def service_program(folder: Path, port: int) -> Program:
    return poolmuster(
        "serve",
        *("--listen", f"127.0.0.1:{port}"),
        *("--lease-duration-secs", str(LEASE_S), "--heartbeat-interval-secs", str(HEARTBEAT_S)),
        folder=folder,
        ready_url=f"http://127.0.0.1:{port}/health/live",
    )


class Relay:
    """A relay's program, and the address of its health."""

    def __init__(self, program: Program, url: str) -> None:
        self.program = program
        self.url = url

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.text()

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((await self.get("/status"))[1])
        return found


def relay_program(folder: Path, server: str, discovery: str, *arguments: str, name: str = "n") -> Relay:
    port = free_port()
    program = poolmuster(
        "relay",
        *("--frontend", server, "--discovery", discovery, "--cluster-id", "c", "--namespace", "ns", "--name", name),
        *("--listen", f"127.0.0.1:{port}", *PROBES, *arguments),
        folder=folder,
        ready_url=f"http://127.0.0.1:{port}/health/live",
    )
    return Relay(program, f"http://127.0.0.1:{port}")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ModelServer]:
    async with model_server(tmp_path) as found:
        yield found


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[str]:
    port = free_port()
    async with service_program(tmp_path, port):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def watcher(service: str) -> AsyncIterator[Watcher]:
    async with watching(service) as found:
        yield found


@contextlib.asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """A service that takes connections and never answers."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


@contextlib.asynccontextmanager
async def half_a_request(url: str) -> AsyncIterator[None]:
    """A client that begins a request and does not go on."""
    host, _, port = url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /status HTTP/1.1\r\n")
    yield
    writer.close()


async def eventually(holds: Callable[[], Any], timeout_s: float = SOON_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not await holds():
            await asyncio.sleep(0.05)


async def pool_at(service: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{service}/pools/c/ns/n") as answer:
        found: dict[str, Any] = await answer.json(content_type=None)
        return found


async def test_it_registers_what_the_server_lists(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher
) -> None:
    await server.say(models=[{"id": "org/big:model.v1", "max_model_len": 4096}, {"id": "small"}])
    labels = tmp_path / "labels"
    labels.write_text('team="a"\n')
    flags = ("--region", "r", "--model-alias", "small=s", "--label", "tier=gold", "--labels-file", str(labels))
    relay = relay_program(tmp_path, server.url + "/v1", service, *flags, "--weight", "3")
    async with relay.program as program:
        told = await watcher.wait_type("added")
        assert told.event["pool"] == {
            "cluster_id": "c",
            "namespace": "ns",
            "dgd_name": "n",
            "frontend_url": server.url,
            "location": {"region": "r"},
            "weight": 3,
            "labels": {"team": "a", "tier": "gold"},
            "models": [{"id": "org/big:model.v1", "context_window": 4096}, {"id": "small", "aliases": ["s"]}],
        }
        assert "/v1 at the end of --frontend is taken off" in program.stderr
        assert await relay.get("/health/ready") == (200, "ok\n")
        status, metrics = await relay.get("/metrics")
        assert status == 200
        assert 'poolmuster_relay_pool_listed{pool="c/ns/n"} 1.0' in metrics
        await asyncio.sleep(LEASE_S)
        assert watcher.movements == ["added"], "heartbeats are not changes"


async def test_a_killed_relays_pool_expires_one_lease_after_its_last_heartbeat(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher
) -> None:
    async with relay_program(tmp_path, server.url, service).program as program:
        await watcher.wait_type("added")
        await asyncio.sleep(1.5)
        await program.kill()
        ends_at_ms = (await pool_at(service))["lease"]["ends_at_ms"]
        told = await watcher.wait_type("removed")
    assert (told.event["cause"], told.event.get("reason")) == ("expired", None)
    assert ends_at_ms - 50 <= told.at_ms <= ends_at_ms + 1_000


async def test_a_terminated_relay_deregisters_at_once(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher
) -> None:
    async with relay_program(tmp_path, server.url, service).program as program:
        await watcher.wait_type("added")
        before_ms = time.time_ns() // 1_000_000
        assert await program.terminate(timeout_s=5) == 0
        told = await watcher.wait_type("removed", timeout_s=1)
    assert (told.event["cause"], told.event["reason"]) == ("deregistered", "relay_stopping")
    assert told.at_ms - before_ms < 1_500


async def test_on_exit_leave_leaves_the_pool_to_its_lease(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher
) -> None:
    async with relay_program(tmp_path, server.url, service, "--on-exit", "leave").program as program:
        await watcher.wait_type("added")
        assert await program.terminate(timeout_s=5) == 0
        told = await watcher.wait_type("removed")
    assert told.event["cause"] == "expired"


@pytest.mark.parametrize("overlap_s", [0.6, 2.5])
async def test_a_rolling_update_of_a_relay_shows_watchers_nothing(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher, overlap_s: float
) -> None:
    """The new relay is up before the old one is stopped, before or after the old one's next heartbeat."""
    old, new = (relay_program(tmp_path / name, server.url, service) for name in ("old", "new"))
    async with old.program as old_program:
        await watcher.wait_type("added")
        async with new.program as new_program:

            async def registered() -> bool:
                return bool((await new.status())["pools"][0]["discovery"]["listed"])

            await eventually(registered)
            await asyncio.sleep(overlap_s)
            assert await old_program.terminate(timeout_s=5) == 0
            await asyncio.sleep(LEASE_S + 1)
            assert watcher.movements == ["added"]
            assert new_program.returncode is None


async def test_a_change_of_the_models_is_a_change_of_the_pool(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher
) -> None:
    async with relay_program(tmp_path, server.url, service).program:
        await watcher.wait_type("added")
        await server.say(models=[{"id": "org/model"}, {"id": "more"}])
        told = await watcher.wait_type("changed", timeout_s=3)
    assert [model["id"] for model in told.event["pool"]["models"]] == ["more", "org/model"]


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ({"health": 500}, "frontend_unhealthy"),
        ({"hang": True}, "frontend_unhealthy"),
        ({"models_status": 500}, "frontend_unhealthy"),
        ({"models": []}, "no_models"),
        ({"ready": {"org%2Fmodel": 503}}, "no_models"),
    ],
)
async def test_a_server_in_trouble_is_deregistered_and_comes_back(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher, trouble: dict[str, Any], reason: str
) -> None:
    relay = relay_program(tmp_path, server.url, service, "--probe-timeout-secs", "0.5")
    async with relay.program as program:
        await watcher.wait_type("added")
        seen = len(watcher.told)
        await server.say(**trouble)
        told = await watcher.wait_type("removed", timeout_s=5, since=seen)
        assert (told.event["cause"], told.event["reason"]) == ("deregistered", reason)
        assert await relay.get("/health/ready") == (200, "ok\n")
        await server.say(health=200, hang=False, models_status=200, models=[{"id": "org/model"}], ready={})
        await watcher.wait_type("added", timeout_s=5, since=len(watcher.told) - 1)
        assert program.returncode is None


async def test_a_model_that_is_not_ready_is_not_registered(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher
) -> None:
    await server.say(models=[{"id": "a/b"}, {"id": "c"}], ready={"a%2Fb": 503})
    async with relay_program(tmp_path, server.url, service).program:
        told = await watcher.wait_type("added")
        assert [model["id"] for model in told.event["pool"]["models"]] == ["c"]
        await server.say(ready={"a%2Fb": 200})
        told = await watcher.wait_type("changed", timeout_s=5)
        assert [model["id"] for model in told.event["pool"]["models"]] == ["a/b", "c"]


async def test_an_operator_who_deregisters_its_id_is_answered_with_a_new_one(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher
) -> None:
    relay = relay_program(tmp_path, server.url, service)
    async with relay.program:
        await watcher.wait_type("added")
        first = (await relay.status())["pools"][0]["relay_id"]
        async with (
            aiohttp.ClientSession() as session,
            session.delete(f"{service}/pools/c/ns/n?relay_id={first}&reason=operator") as answer,
        ):
            assert answer.status == 204
        await watcher.wait_type("removed")
        await watcher.wait_type("added", timeout_s=5, since=2)
        assert (await relay.status())["pools"][0]["relay_id"] != first


async def test_it_waits_for_a_service_that_is_down_at_the_start_and_outlives_its_restart(
    tmp_path: Path, server: ModelServer
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    relay = relay_program(tmp_path, server.url, url)
    async with relay.program as relay_running:
        await asyncio.sleep(1)
        status, text = await relay.get("/health/ready")
        assert status == 503
        assert "cannot be reached" in text
        assert (await relay.get("/health/live"))[0] == 200
        async with service_program(tmp_path, port) as service_running:
            await eventually(lambda: listed(url))
            await service_running.kill()
            await asyncio.sleep(1)
            await service_running.start()
            await eventually(lambda: listed(url), timeout_s=LEASE_S)
        assert relay_running.returncode is None
        assert "pool registered again after it had left the list" in relay_running.stderr


async def listed(service: str) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"{service}/pools") as answer:
        return len((await answer.json())["pools"]) == 1


@pytest.mark.parametrize("kind", ["dead", "black hole"])
async def test_one_url_that_does_not_answer_costs_nothing(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher, kind: str
) -> None:
    async with black_hole() as hole:
        first = hole if kind == "black hole" else f"http://127.0.0.1:{free_port()}"
        async with relay_program(tmp_path, server.url, f"{first},{service}").program:
            await watcher.wait_type("added")
            await asyncio.sleep(LEASE_S * 2)
            assert watcher.movements == ["added"]


async def test_it_ends_in_time_though_nothing_around_it_answers(tmp_path: Path, server: ModelServer) -> None:
    """A heartbeat and a probe are in flight, and a client is in the midst of a request."""
    async with black_hole() as hole:
        relay = relay_program(tmp_path, server.url, hole)
        async with relay.program as program, half_a_request(relay.url):
            await asyncio.sleep(1)
            await server.say(hang=True)
            await asyncio.sleep(0.5)
            started_s = time.monotonic()
            assert await program.terminate(timeout_s=6) == 0
            assert time.monotonic() - started_s < 5


async def test_a_stopped_and_continued_relay_is_back_at_once(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher
) -> None:
    async with relay_program(tmp_path, server.url, service).program as program:
        await watcher.wait_type("added")
        await program.stop_cont(LEASE_S + 1)
        assert (await watcher.wait_type("removed")).event["cause"] == "expired"
        await watcher.wait_type("added", timeout_s=2, since=2)


async def test_many_pools_from_one_relay(tmp_path: Path, server: ModelServer, service: str, watcher: Watcher) -> None:
    pools = tmp_path / "pools.toml"
    entry = '[[pools]]\nname = "{}"\nfrontend = "{}"\n'
    pools.write_text(entry.format("a", server.url) + entry.format("b", server.url))
    port = free_port()
    program = poolmuster(
        "relay",
        *("--pools", str(pools), "--discovery", service, "--cluster-id", "c", "--listen", f"127.0.0.1:{port}", *PROBES),
        folder=tmp_path,
        ready_url=f"http://127.0.0.1:{port}/health/live",
    )
    async with program:
        await watcher.wait(lambda told: watcher.movements.count("added") == 2)
        pools.write_text(entry.format("b", server.url) + entry.format("d", server.url))
        told = await watcher.wait_type("removed", timeout_s=5)
        assert told.event["key"]["dgd_name"] == "a"
        await watcher.wait(lambda told: watcher.movements.count("added") == 3)
        assert await program.terminate(timeout_s=5) == 0
        await watcher.wait(lambda told: watcher.movements.count("removed") == 3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--frontend", "http://localhost:8000", "--discovery", "http://d.example.com"), "--advertise-url"),
        (("--frontend", "http://[::ffff:127.0.0.1]:8000", "--discovery", "http://d.example.com"), "this machine only"),
        (
            ("--frontend", "http://h:1", "--advertise-url", "http://0.0.0.0:1", "--discovery", "http://d.example.com"),
            "--advertise-url",
        ),
        (("--frontend", "http://h:1", "--health-path", "health"), "--health-path"),
        (("--frontend", "http://h:1", "--listen", ":8081"), "--allow-anonymous"),
        (("--frontend", "http://h:1", "--frontend-token-file", "/none"), "/none"),
        (("--frontend", "http://h:1", "--pools", "/none"), "--frontend"),
        ((), "--frontend"),
    ],
)
async def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    program = poolmuster("relay", "--cluster-id", "c", "--name", "n", *arguments, folder=tmp_path)
    async with program:
        assert await program.wait() == 2
    assert says in program.stderr
    assert program.stderr.count("\n") == 1


async def test_a_port_in_use_is_one_line_and_exit_code_1(tmp_path: Path, server: ModelServer, service: str) -> None:
    address = service.removeprefix("http://")
    relay = ("relay", "--frontend", server.url, "--cluster-id", "c", "--name", "n", "--listen", address)
    async with poolmuster(*relay, folder=tmp_path) as program:
        assert await program.wait() == 1
    assert "cannot listen on" in program.stderr
    assert program.stderr.count("\n") == 1


async def test_flags_come_from_the_environment_too(
    tmp_path: Path, server: ModelServer, service: str, watcher: Watcher
) -> None:
    env = {
        "POOLMUSTER_FRONTEND": server.url,
        "POOLMUSTER_DISCOVERY": f"{service} {service}/",
        "POOLMUSTER_CLUSTER_ID": "c",
        "POOLMUSTER_NAMESPACE": "ns",
        "POOLMUSTER_NAME": "n",
        "POOLMUSTER_LABEL": "tier=gold team=a",
        "POOLMUSTER_LISTEN": f"127.0.0.1:{free_port()}",
    }
    async with poolmuster("relay", folder=tmp_path, env=env):
        told = await watcher.wait_type("added")
    assert told.event["pool"]["labels"] == {"tier": "gold", "team": "a"}
