"""Changes, status, health and metrics, as the HTTP interface shows them."""

from collections.abc import AsyncIterator

import pytest

from poolmuster.model.schema import RouterReplica
from poolmuster.programs.settings.serve import ServeLimits
from tests.support.service import Service


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Service() as service:
        yield service


async def test_l10_changes_have_their_causes_and_tell_how_far_back_they_go(service: Service) -> None:
    started_at_ms = service.clock.wall_ms()
    await service.register("a", labels={"tier": "gold"})
    await service.clock.advance(10_000)
    await service.register("a", labels={"tier": "lead"})
    await service.register("b", labels={"tier": "lead"})
    await service.leave("b", query="?reason=no_models")
    found = (await service.get("/changes")).json
    assert [(change["type"], change["revision"]) for change in found["changes"]] == [
        ("added", "boot.1"),
        ("changed", "boot.2"),
        ("added", "boot.3"),
        ("removed", "boot.4"),
    ]
    assert (found["changes"][3]["cause"], found["changes"][3]["reason"]) == ("deregistered", "no_models")
    assert found["known_since_at_ms"] == started_at_ms
    gold = (await service.get("/changes?label=tier%3Dgold")).json["changes"]
    assert [(change["type"], change.get("cause")) for change in gold] == [("added", None), ("removed", "filtered")]
    recent = (await service.get("/changes?since=5")).json
    assert [change["revision"] for change in recent["changes"]] == ["boot.2", "boot.3", "boot.4"]
    assert recent["reaches_back"] is True


async def test_changes_come_in_pieces_that_make_one_list(service: Service) -> None:
    for number in range(250):
        await service.register("a", weight=number, labels={"odd": str(number % 2)} if number != 120 else None)
    answer = await service.get("/changes")
    assert [change["revision"] for change in answer.json["changes"]] == [f"boot.{number}" for number in range(1, 251)]
    odd = (await service.get("/changes?label=odd%3D1")).json["changes"]
    assert {change["type"] for change in odd} == {"added", "removed"}
    assert (await service.get("/changes?label=none")).json["changes"] == []
    assert (await service.request("HEAD", "/changes")).body == b""


async def test_changes_that_were_forgotten_are_not_claimed_to_be_known() -> None:
    async with Service(limits=ServeLimits(history_changes=2)) as service:
        await service.warm_up()
        for weight in range(4):
            await service.register("a", weight=weight)
            await service.clock.advance(1_000)
        found = (await service.get("/changes?since=10")).json
        assert [change["revision"] for change in found["changes"]] == ["boot.4", "boot.5"]
        assert found["reaches_back"] is False
        assert (await service.get("/changes?since=2")).json["reaches_back"] is True


async def test_l8_completeness_is_among_the_changes(service: Service) -> None:
    await service.warm_up()
    (change,) = (await service.get("/changes")).json["changes"]
    assert (change["type"], change["complete"], change["sources"][0]["state"]) == ("completeness", True, "fresh")


@pytest.mark.parametrize(
    "query",
    [
        "?since=-1",
        "?since=nan",
        "?since=soon",
        "?since=inf",
        "?since=1_0",
        "?since=%D9%A1",
        "?since=+1",
        "?since=1e3",
        "?since=",
        "?since=1&since=2",
        "?until=1",
    ],
)
async def test_a_bad_span_is_400(service: Service, query: str) -> None:
    assert (await service.get("/changes" + query)).status == 400


async def test_c11_a_step_of_the_wall_clock_does_not_hide_changes(service: Service) -> None:
    await service.register("a")
    service.clock.step_wall(3_600_000)
    await service.clock.advance(1_000)
    assert len((await service.get("/changes?since=5")).json["changes"]) == 1


async def test_status_tells_who_it_is_and_what_it_holds() -> None:
    routers = (RouterReplica("r1", "http://one"),)
    async with Service(routers=routers) as service:
        await service.register("a")
        await service.watch()
        await service.clock.advance(1_000)
        status = (await service.get("/status")).json
        assert status["instance"]["id"] == "boot"
        assert status["instance"]["uptime_ms"] == 1_000
        assert (status["pools"], status["clusters"], status["watchers"]) == (1, {"c": 1}, 1)
        assert (status["lease_ms"], status["heartbeat_interval_ms"]) == (15_000, 5_000)
        assert (status["pool_discovery"], status["registration_storage"]) == ("registrations", "memory")
        assert (await service.get("/routers")).json == {"routers": [{"id": "r1", "url": "http://one"}]}
        assert (await service.register("a")).json["routers"] == [{"id": "r1", "url": "http://one"}]


async def test_health_depends_on_nothing_and_readiness_ends_first(service: Service) -> None:
    assert (await service.get("/health/live")).status == 200
    assert (await service.get("/health/ready")).status == 200
    service.instance.stop()
    assert (await service.get("/health/live")).status == 200
    answer = await service.get("/health/ready")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert (await service.get()).status == 200


async def test_c27_metrics_tell_the_lag_the_list_and_the_limits(service: Service) -> None:
    await service.register("a")
    text = (await service.get("/metrics")).body.decode()
    for line in (
        "poolmuster_complete 0.0",
        'poolmuster_source_fresh{kind="memory",name="memory",reason="warming_up"} 0.0',
        'poolmuster_pools{cluster="c"} 1.0',
        "poolmuster_listing_lag_seconds_count 1.0",
        'poolmuster_registrations_total{outcome="created"} 1.0',
        "poolmuster_limit_pools 20000.0",
    ):
        assert line in text.splitlines()
    await service.leave("a")
    assert 'cluster="c"' not in (await service.get("/metrics")).body.decode()


async def test_unknown_parameters_are_refused_everywhere(service: Service) -> None:
    for path in ("/routers", "/status", "/changes", "/pools/a/b/c"):
        answer = await service.get(path + "?x=1")
        assert (answer.status, answer.json["type"]) == (400, "urn:poolmuster:unknown-parameter")
    assert (await service.request("POST", "/pools?x=1")).status == 400


async def test_a_service_of_this_machine_only_answers_to_loopback_names(service: Service) -> None:
    answer = await service.get("/pools", {"host": "evil.example"})
    assert (answer.status, answer.json["type"]) == (421, "urn:poolmuster:misdirected-host")
    assert (await service.get("/pools", {"host": "[::1]:8080"})).status == 200
