"""The relay's own pages, asked without a socket."""

import asyncio
import contextlib
import json
from pathlib import Path

from prometheus_client import CollectorRegistry

from poolmuster.http.auth import AccessPolicy, Authorizer
from poolmuster.relay.app import RelayCollector, relay_apps
from poolmuster.relay.heartbeat import HeartbeatFailed, HeartbeatRefused
from poolmuster.relay.supervisor import AgentSupervisor
from tests.unit.relay.asking import ask_app
from tests.unit.relay.test_supervisor import FILE, crew_of
from tests.unit.relay.world import World


async def ask(
    supervisor: AgentSupervisor, path: str, method: str = "GET", host: str = "localhost"
) -> tuple[int, bytes]:
    """Status and body of an answer."""
    main, _ = relay_apps(
        supervisor, "boot", CollectorRegistry(), AccessPolicy(authorizer=Authorizer(None), loopback_only=True)
    )
    return await ask_app(main, path, {"host": host}, method)


async def test_ready_while_every_pool_whose_server_is_up_is_listed(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))
    supervisor = crew_of(world, path)
    supervisor.check()
    task = asyncio.create_task(supervisor.run())
    await asyncio.sleep(0)
    assert (await ask(supervisor, "/health/ready"))[0] == 503
    await world.clock.advance(100)
    assert await ask(supervisor, "/health/ready") == (200, b"ok\n")
    world.outcome = HeartbeatFailed("cannot be reached")
    await world.clock.advance(10_000)
    assert (await ask(supervisor, "/health/ready"))[0] == 200, "the lease still runs"
    await world.clock.advance(10_000)
    status, body = await ask(supervisor, "/health/ready")
    assert (status, json.loads(body)["detail"]) == (503, "c/ns/a: it is not listed: cannot be reached.")
    world.outcome = HeartbeatRefused(403, "not your cluster")
    await world.clock.advance(5_000)
    assert b"discovery refuses it: 403" in (await ask(supervisor, "/health/ready"))[1]
    supervisor.stop()
    assert b"stopping" in (await ask(supervisor, "/health/ready"))[1]
    assert await ask(supervisor, "/health/live") == (200, b"ok\n")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_status_and_metrics_are_of_the_pools_there_are_now(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "pools.toml"
    path.write_text(FILE.format("a", "http://a:1"))
    supervisor = crew_of(world, path)
    supervisor.check()
    task = asyncio.create_task(supervisor.run())
    await world.clock.advance(100)
    status = json.loads((await ask(supervisor, "/status"))[1])
    (pool,) = status["pools"]
    assert (pool["key"], pool["phase"], pool["relay_id"], pool["fault"]) == ("c/ns/a", "registered", "id-0", None)
    assert pool["server"]["models"] == ["m"]
    metrics = (await ask(supervisor, "/metrics"))[1].decode()
    assert 'poolmuster_relay_heartbeats_total{outcome="renewed",pool="c/ns/a"} 1.0' in metrics
    path.write_text("")
    await world.clock.advance(2_100)
    assert "c/ns/a" not in (await ask(supervisor, "/metrics"))[1].decode(), "series leave with their pool"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_what_is_not_there_is_a_problem(tmp_path: Path) -> None:
    supervisor = crew_of(World(), tmp_path / "pools.toml")
    assert (await ask(supervisor, "/pools"))[0] == 404
    assert (await ask(supervisor, "/status", method="POST"))[0] == 405
    assert (await ask(supervisor, "/status", host="evil.example.com"))[0] == 421


def test_every_metric_is_documented(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "relay.md").read_text()
    for family in RelayCollector(crew_of(World(), tmp_path / "pools.toml")).collect():
        assert f"`{family.name}{'_total' if family.type == 'counter' else ''}`" in page, family.name
