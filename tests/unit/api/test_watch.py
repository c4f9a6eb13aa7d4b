"""``GET /pools/watch`` in both formats, on a clock that the test moves."""

from collections.abc import AsyncIterator, Callable

import pytest

from poolmuster.api import watch
from poolmuster.programs.settings.serve import ServeLimits
from tests.support.service import NDJSON, Service
from tests.support.streams import Event

MINUTE_MS = 60_000


@pytest.fixture(params=[True, False], ids=["sse", "ndjson"])
def sse(request: pytest.FixtureRequest) -> bool:
    """Everything holds in both formats."""
    return bool(request.param)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Service() as service:
        yield service


def types(events: list[Event]) -> list[str]:
    return [event["type"] for event in events]


async def test_it_begins_with_the_list_and_goes_on_with_each_change(service: Service, sse: bool) -> None:
    await service.register("a", weight=1)
    stream = await service.watch(sse=sse)
    assert stream.status == 200
    (snapshot,) = stream.take()
    listed = (await service.get()).json
    digest = snapshot["id"].rpartition(".")[2]
    assert snapshot == {"type": "snapshot", "id": f"boot.1.{digest}", **listed}
    await service.register("b")
    await service.register("a", weight=2)
    await service.leave("b", query="?reason=operator&detail=by+hand")
    await service.clock.settle()
    pools = (await service.get()).json["pools"]
    place = {"id": f"boot.2.{digest}", "revision": "boot.2"}
    added, changed, removed = stream.take()
    assert added == {"type": "added", **place, "pool": {"cluster_id": "c", "dgd_name": "b", "namespace": "n"}}
    assert (changed["type"], changed["pool"], changed["revision"]) == ("changed", pools[0], "boot.3")
    assert removed == {
        "type": "removed",
        "id": f"boot.4.{digest}",
        "revision": "boot.4",
        "key": {"cluster_id": "c", "namespace": "n", "dgd_name": "b"},
        "cause": "deregistered",
        "reason": "operator",
        "detail": "by hand",
    }


async def test_headers_keep_proxies_from_buffering(service: Service, sse: bool) -> None:
    stream = await service.watch(sse=sse)
    kind = "text/event-stream" if sse else NDJSON
    assert stream.headers["content-type"] == f"{kind}; charset=utf-8"
    assert stream.headers["cache-control"] == "no-cache, no-transform"
    assert stream.headers["x-accel-buffering"] == "no"
    assert stream.headers["poolmuster-instance"] == "boot"
    assert "content-length" not in stream.headers


async def test_a_format_that_there_is_not_is_406(service: Service) -> None:
    assert (await service.get("/pools/watch", {"accept": "text/html"})).status == 406


async def test_head_of_a_watch_is_its_head(service: Service) -> None:
    answer = await service.request("HEAD", "/pools/watch")
    assert (answer.status, answer.body) == (200, b"")
    assert (await service.get("/status")).json["watchers"] == 0


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "text/event-stream"),
        ("application/*", NDJSON),
        ("application/x-ndjson, text/event-stream;q=0.5", NDJSON),
        ("text/event-stream;q=never, application/x-ndjson;level=1;q=0.1", NDJSON),
    ],
)
async def test_the_format_is_the_one_the_client_likes_best(service: Service, accept: str, kind: str) -> None:
    answer = await service.request("HEAD", "/pools/watch", {"accept": accept})
    assert answer.headers["content-type"].startswith(kind)


async def test_l2_an_end_of_a_lease_is_told_when_it_comes(service: Service, sse: bool) -> None:
    await service.register("a")
    stream = await service.watch(sse=sse)
    await service.clock.advance(14_999)
    assert "removed" not in types(stream.take())
    await service.clock.advance(1)
    removed = next(event for event in stream.take() if event["type"] == "removed")
    assert (removed["cause"], removed["reason"]) == ("expired", None)


async def test_l8_completeness_is_told_with_its_sources(service: Service, sse: bool) -> None:
    stream = await service.watch(sse=sse)
    assert stream.take()[0]["complete"] is False
    await service.clock.advance(15_100)
    (event,) = [each for each in stream.take() if each["type"] == "completeness"]
    assert (event["complete"], event["revision"], event["sources"][0]["state"]) == (True, "boot.1", "fresh")


async def test_c3_a_pool_that_leaves_the_filter_is_removed_and_one_that_enters_is_added(
    service: Service, sse: bool
) -> None:
    await service.register("a", labels={"tier": "gold"})
    stream = await service.watch("?label=tier%3Dgold", sse=sse)
    await service.register("a", labels={"tier": "lead"})
    await service.register("b", labels={"tier": "lead"})
    await service.register("b", labels={"tier": "gold"})
    await service.clock.settle()
    snapshot, removed, added = stream.take()
    assert len(snapshot["pools"]) == 1
    assert (removed["type"], removed["cause"], removed["key"]["dgd_name"]) == ("removed", "filtered", "a")
    assert (added["type"], added["pool"]["dgd_name"]) == ("added", "b")


async def test_include_lease_shows_leases_in_the_watch(service: Service, sse: bool) -> None:
    await service.register("a", relay_id="r")
    stream = await service.watch("?include=lease", sse=sse)
    await service.register("b", relay_id="r")
    await service.clock.settle()
    snapshot, added = stream.take()
    for pool in (snapshot["pools"][0], added["pool"]):
        assert pool["status"]["lease"]["relay_id"] == "r"


async def test_a_watch_resumes_from_every_place_that_is_held(service: Service, sse: bool) -> None:
    stream = await service.watch(sse=sse)
    for number in range(6):
        await service.register("a", weight=number)
        await service.clock.settle()
    events = stream.take()
    for number, event in enumerate(events):
        resumed = await service.watch(last_id=event["id"], sse=sse)
        first, *others = resumed.take()
        assert (first["type"], first["id"], first["complete"]) == ("completeness", event["id"], False)
        assert first["revision"] == event["revision"]
        assert others == events[number + 1 :]


async def test_a_resumed_watch_begins_with_the_present_completeness(service: Service, sse: bool) -> None:
    stream = await service.watch(sse=sse)
    event_id = stream.take()[0]["id"]
    await service.warm_up()
    first, second = (await service.watch(last_id=event_id, sse=sse)).take()
    assert (first["type"], first["complete"], first["id"]) == ("completeness", True, event_id)
    assert (second["type"], second["complete"], second["revision"]) == ("completeness", True, "boot.1")


async def test_a_place_that_is_not_held_here_gets_a_snapshot(sse: bool) -> None:
    async with Service(limits=ServeLimits(history_changes=2)) as service:
        stream = await service.watch(sse=sse)
        boot, _, digest = stream.take()[0]["id"].split(".")
        for weight in range(3):
            await service.register("a", weight=weight)
        other = (await service.watch("?model=x", sse=sse)).take()[0]["id"].split(".")[2]
        for place in (
            f"{boot}.0.{digest}",
            f"{boot}.4.{digest}",
            f"{boot}.-1.{digest}",
            f"{boot}.{'9' * 30}.{digest}",
            f"{boot}.\u0663.{digest}".encode().decode("latin-1"),
            f"another.3.{digest}",
            f"{boot}.3.{other}",
            f"{boot}.3",
            "nonsense",
            "..",
        ):
            assert types((await service.watch(last_id=place, sse=sse)).take()) == ["snapshot"], place
        held = await service.watch(last_id=f"{boot}.1.{digest}", sse=sse)
        assert types(held.take()) == ["completeness", "changed", "changed"]


async def test_ids_tell_questions_apart_and_not_their_spelling(service: Service) -> None:
    digests = {}
    for query in ("", "?model=a&model=b", "?model=b&model=a&model=a", "?model=a", "?dgd_name=a", "?include=lease"):
        digests[query] = (await service.watch(query)).take()[0]["id"].split(".")[2]
    assert digests["?model=a&model=b"] == digests["?model=b&model=a&model=a"]
    assert len(set(digests.values())) == 5


async def test_there_is_a_sign_of_life_at_least_every_five_seconds(service: Service, sse: bool) -> None:
    await service.warm_up()
    stream = await service.watch(sse=sse)
    stream.take()
    for _ in range(4):
        await service.clock.advance(5_000)
        pings = stream.take()
        assert set(types(pings)) == {"ping"}
        if not sse:
            assert pings[-1]["revision"] == "boot.1"
    assert stream.data.endswith(b": ping\n\n" if sse else b"}\n")


async def test_a_ping_bears_the_latest_revision_though_the_filter_hides_it(service: Service) -> None:
    await service.warm_up()
    stream = await service.watch("?model=none", sse=False)
    await service.register("a")
    await service.clock.advance(5_000)
    ping = stream.take()[-1]
    assert (ping["type"], ping["revision"]) == ("ping", "boot.2")


@pytest.mark.parametrize(("drawn", "minutes"), [(min, 30), (max, 60)])
async def test_a_stream_ends_of_age_between_half_an_hour_and_an_hour(
    service: Service, sse: bool, drawn: Callable[[int, int], int], minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of it here: each half second is a look at every stream."""
    assert watch.AGE_MS == (30 * MINUTE_MS, 60 * MINUTE_MS)
    monkeypatch.setattr(watch, "AGE_MS", tuple(age_ms // 10 for age_ms in watch.AGE_MS))
    service.draw = drawn
    stream = await service.watch(sse=sse)
    for _ in range(minutes // 10):
        assert not stream.ended
        await service.clock.advance(MINUTE_MS)
    assert stream.ended
    closing = stream.take()[-1]
    assert (closing["type"], closing["reason"], closing["revision"]) == ("closing", "max_age", "boot.1")
    resumed = (await service.watch(last_id=closing["id"], sse=sse)).take()
    assert types(resumed) == ["completeness"]


async def test_at_the_end_of_the_service_every_watcher_is_told(service: Service, sse: bool) -> None:
    streams = [await service.watch(query, sse=sse) for query in ("", "?model=x", "?model=x")]
    await service.register("a")
    service.instance.close_streams()
    await service.clock.settle()
    for stream in streams:
        assert stream.ended
        closing = stream.take()[-1]
        assert (closing["type"], closing["reason"], closing["revision"]) == ("closing", "shutdown", "boot.1")
    assert (await service.get("/pools/watch")).status == 503


async def test_a_slow_watcher_gets_one_fresh_list_and_the_third_time_within_a_minute_goes(sse: bool) -> None:
    async with Service(limits=ServeLimits(history_changes=2)) as service:
        stream = await service.watch(sse=sse)
        for turn in range(3):
            stream.stall()
            for weight in range(8):
                await service.register("a", weight=10 * turn + weight)
                await service.clock.settle()
            stream.read_on()
            await service.clock.settle()
            if turn < 2:
                assert (
                    stream.copy().pools_json
                    == b'[{"cluster_id":"c","dgd_name":"a","namespace":"n","weight":%d}]' % (10 * turn + 7)
                )
            await service.clock.advance(10_000)
        assert stream.ended
        assert types(stream.events).count("snapshot") == 3
        assert (stream.events[-1]["type"], stream.events[-1]["reason"]) == ("closing", "too_slow")


async def test_a_watcher_that_is_slow_now_and_then_is_kept(sse: bool) -> None:
    async with Service(limits=ServeLimits(history_changes=2)) as service:
        stream = await service.watch(sse=sse)
        for turn in range(5):
            stream.stall()
            for weight in range(8):
                await service.register("a", weight=10 * turn + weight)
                await service.clock.settle()
            stream.read_on()
            await service.clock.advance(MINUTE_MS)
        assert not stream.ended
        assert types(stream.events).count("snapshot") == 6


async def test_a_watcher_whose_filter_hides_what_happens_is_not_slow(sse: bool) -> None:
    async with Service(limits=ServeLimits(history_changes=2)) as service:
        await service.register("mine", labels={"tier": "gold"})
        stream = await service.watch("?label=tier%3Dgold", sse=sse)
        for weight in range(50):
            await service.register("a", weight=weight)
            await service.clock.settle()
        await service.register("mine", labels={"tier": "gold"}, weight=1)
        await service.clock.settle()
        assert types(stream.take()) == ["snapshot", "changed"]
        assert service.metrics.watch_resets._value.get() == 0


async def test_a_cut_stream_leaves_nothing_behind(service: Service, sse: bool) -> None:
    streams = [await service.watch(query, sse=sse) for query in ("", "?model=x")]
    assert (await service.get("/status")).json["watchers"] == 2
    for stream in streams:
        stream.cut()
    await service.clock.settle()
    assert all(stream.ended for stream in streams)
    assert (await service.get("/status")).json["watchers"] == 0
    assert not service.instance.broadcaster.groups


async def test_streams_have_a_limit() -> None:
    async with Service(streams=1) as service:
        first = await service.watch()
        answer = await service.get("/pools/watch")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        first.cut()
        await service.clock.settle()
        assert (await service.watch()).status == 200


async def test_many_changes_at_once_come_in_order_and_whole(service: Service, sse: bool) -> None:
    stream = await service.watch(sse=sse)
    stream.stall()
    for number in range(700):
        await service.register(f"{number:03}", text="x" * 900)
    stream.read_on()
    await service.clock.settle()
    numbers = [int(event["revision"].split(".")[1]) for event in stream.events]
    assert numbers == list(range(701))
