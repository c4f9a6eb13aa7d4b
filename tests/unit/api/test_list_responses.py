"""``GET /pools``: bytes, ETags, encodings and filters, on a clock that the test moves."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator

import pytest

from poolmuster.api import list_responses as lists_module
from poolmuster.model.source import SourceKind, SourceReason, SourceState
from poolmuster.registry.source_status import SourceStatus
from poolmuster.sources.memory import MemoryStore
from tests.support.registrations import key
from tests.support.service import Service, path_of, pools_of


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Service() as service:
        yield service


async def test_a_listed_pool_is_its_registration_flat_canonical_and_without_its_relay(service: Service) -> None:
    await service.post(
        b'{ "weight": 1, "zz": [2, 1], "status_page": "x", "relay_id": "r", "dgd_name": "a", "namespace": "n",'
        b' "models": [{"id": "y"}, {"aliases": ["q", "p", "q"], "id": "x"}, {"id": "y"}], "cluster_id": "c",'
        b' "labels": null, "location": {"region": null}, "\\u00e9": "\\ud83d\\ude00" }'
    )
    assert (
        pools_of(await service.get())
        == (
            '[{"cluster_id":"c","dgd_name":"a","location":{},"models":[{"aliases":["p","q"],"id":"x"},{"id":"y"}],'
            '"namespace":"n","status_page":"x","weight":1,"zz":[2,1],"\u00e9":"\U0001f600"}]'
        ).encode()
    )


async def test_l3_a_heartbeat_changes_neither_revision_nor_etag(service: Service) -> None:
    await service.register("a", relay_id="r", models=[{"id": "x"}, {"id": "y"}])
    before = await service.get()
    await service.register("a", relay_id="r2", models=[{"id": "y"}, {"id": "x"}])
    after = await service.get()
    assert after.headers["etag"] == before.headers["etag"]
    assert after.headers["poolmuster-revision"] == before.headers["poolmuster-revision"]


async def test_an_empty_list_is_a_list(service: Service) -> None:
    answer = await service.get()
    assert answer.json["pools"] == []
    assert answer.headers["content-length"] == str(len(answer.body))


async def test_every_answer_bears_revision_completeness_and_instance(service: Service) -> None:
    for target in ("/pools", "/nothing", "/health/live", "/pools?x=1", "/routers"):
        answer = await service.get(target)
        assert answer.headers["poolmuster-revision"] == "boot.0"
        assert answer.headers["poolmuster-complete"] == "false"
        assert answer.headers["poolmuster-instance"] == "boot"


async def test_equal_content_has_equal_etags_whatever_boot_and_filter_and_other_content_has_others() -> None:
    etags = []
    for boot_id in ("one", "two"):
        async with Service(boot_id=boot_id) as service:
            empty = (await service.get()).headers["etag"]
            for name in ("a", "b") if boot_id == "one" else ("b", "a"):
                await service.register(name, relay_id=boot_id)
            full = await service.get()
            assert (await service.get("/pools?cluster_id=c")).headers["etag"] == full.headers["etag"]
            assert (await service.get("/pools?cluster_id=d")).headers["etag"] == empty
            half = (await service.get("/pools?dgd_name=a")).headers["etag"]
            await service.clock.advance(14_000)
            for name in "ab":
                await service.register(name)
            await service.clock.advance(1_000)
            complete = (await service.get()).headers["etag"]
            etags.append((empty, half, full.headers["etag"], complete))
    assert etags[0] == etags[1]
    assert len(set(etags[0])) == 4
    assert all(etag.startswith('W/"') for etag in etags[0])


async def test_304_where_the_client_has_it_already(service: Service) -> None:
    await service.register("a")
    etag = (await service.get()).headers["etag"]
    for value in (etag, etag.removeprefix("W/"), f'"other", {etag}', "*"):
        answer = await service.get("/pools", {"if-none-match": value})
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["etag"] == etag
        assert answer.headers["poolmuster-revision"] == "boot.1"
    await service.register("a", weight=1)
    assert (await service.get("/pools", {"if-none-match": etag})).status == 200


async def test_the_revision_is_not_part_of_the_etag(service: Service) -> None:
    await service.register("a")
    first = await service.get()
    await service.register("b")
    await service.leave("b")
    second = await service.get()
    assert second.headers["etag"] == first.headers["etag"]
    assert second.headers["poolmuster-revision"] != first.headers["poolmuster-revision"]


async def test_gzip_on_request_once_a_change(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped: list[int] = []
    gzip_ = lists_module._gzip

    def counting(pieces: list[bytes | memoryview]) -> bytes:
        zipped.append(len(pieces))
        return gzip_(pieces)

    monkeypatch.setattr(lists_module, "_gzip", counting)
    for number in range(20):
        await service.register(f"{number}", text="x" * 200)
    await service.warm_up()
    for number in range(20):
        await service.register(f"{number}", text="x" * 200)
    plain = await service.get("/pools", {"accept-encoding": "br, gzip;q=0"})
    assert "content-encoding" not in plain.headers
    answers = await asyncio.gather(*(service.get("/pools", {"accept-encoding": "gzip"}) for _ in range(3)))
    for answer in answers:
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "accept-encoding"
        assert gzip.decompress(answer.body) == plain.body
        assert answer.headers["etag"] == plain.headers["etag"]
    assert len(zipped) == 1
    await service.register("0", text="y" * 200)
    await service.get("/pools", {"accept-encoding": "*"})
    assert len(zipped) == 2


async def test_beyond_so_many_compressed_lists_none_is_compressed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists_module, "GZIPPED_LIMIT", 1)
    for name in "ab":
        await service.register(name, text="x" * 2_000)
    first = await service.get("/pools?dgd_name=a", {"accept-encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip"
    second = await service.get("/pools?dgd_name=b", {"accept-encoding": "gzip"})
    assert "content-encoding" not in second.headers
    assert second.json["pools"][0]["dgd_name"] == "b"


async def test_include_lease_shows_leases_and_has_no_etag(service: Service) -> None:
    await service.register("a", relay_id="r", alpha=1, zeta=2)
    await service.register("b")
    await service.clock.advance(400)
    answer = await service.get("/pools?include=lease")
    assert "etag" not in answer.headers
    assert answer.headers.get("content-length") in (None, str(len(answer.body)))
    first = answer.json["pools"][0]
    assert first["status"]["lease"] == {
        "duration_ms": 15_000,
        "ends_at_ms": service.clock.wall_ms() + 14_600,
        "relay_id": "r",
    }
    assert list(first) == sorted(first)
    del first["status"]
    assert first == (await service.get()).json["pools"][0]
    assert (await service.get("/pools?include=lease&dgd_name=none")).json["pools"] == []


async def test_clears_in_ms_is_as_of_the_encoding_and_encoded_once_a_second_at_most(service: Service) -> None:
    def clears_in_ms(answer: bytes) -> int:
        value: int = json.loads(answer)["sources"][0]["clears_in_ms"]
        return value

    first = await service.get()
    assert clears_in_ms(first.body) == 15_000
    await service.clock.advance(900)
    assert (await service.get()).body == first.body
    await service.clock.advance(100)
    later = await service.get()
    assert clears_in_ms(later.body) == 14_000
    assert later.headers["etag"] == first.headers["etag"]
    await service.warm_up()
    complete = await service.get()
    assert complete.json["complete"] is True
    assert complete.json["sources"] == [
        {
            "kind": "memory",
            "name": "memory",
            "state": "fresh",
            "reason": None,
            "detail": None,
            "since_at_ms": service.clock.wall_ms() - 1_000,
            "last_good_at_ms": None,
            "clears_in_ms": None,
        }
    ]


async def test_a_list_is_incomplete_until_a_late_timer_has_run_and_no_longer(service: Service) -> None:
    await service.warm_up()
    whole = await service.get()
    service.clock.jump(1_500)
    doubtful = await service.get()
    await service.clock.settle()
    again = await service.get()
    assert [answer.json["complete"] for answer in (whole, doubtful, again)] == [True, False, True]
    assert again.headers["etag"] == whole.headers["etag"] != doubtful.headers["etag"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["a", "b", "x/y"]),
        ("?model=m1", ["a"]),
        ("?model=org%2Fm%3A2.0&model=m1", ["a", "b"]),
        ("?model=alias", ["b"]),
        ("?region=west&model=m1", ["a"]),
        ("?region=east&model=m1", []),
        ("?region=west&region=east", ["a", "b"]),
        ("?label=tier", ["a", "b"]),
        ("?label=tier%3Dgold", ["a"]),
        ("?label=tier%3Dgold&label=odd%3Da%3Db", ["a"]),
        ("?label=tier%3Dgold&label=none", []),
        ("?label=odd%3Da%3Db", ["a"]),
        ("?dgd_name=x%2Fy", ["x/y"]),
        ("?namespace=n&cluster_id=c", ["a", "b", "x/y"]),
        ("?namespace=N", []),
        ("?include=unlisted", ["a", "b", "x/y"]),
    ],
)
async def test_filters(service: Service, query: str, names: list[str]) -> None:
    models = [{"id": "m1"}]
    await service.register("a", models=models, location={"region": "west"}, labels={"tier": "gold", "odd": "a=b"})
    await service.register(
        "b", models=[{"id": "org/m:2.0", "aliases": ["alias"]}], location={"region": "east"}, labels={"tier": "lead"}
    )
    await service.register("x/y")
    answer = await service.get("/pools" + query)
    assert [pool["dgd_name"] for pool in answer.json["pools"]] == names


@pytest.mark.parametrize("query", ["?modell=x", "?since=5", "?limit=1&model=x"])
async def test_an_unknown_parameter_is_named(service: Service, query: str) -> None:
    for path in ("/pools", "/pools/watch"):
        answer = await service.get(path + query)
        assert (answer.status, answer.json["type"]) == (400, "urn:poolmuster:unknown-parameter")
        name = query[1:].partition("=")[0]
        assert answer.json["errors"][0]["pointer"] == name
        assert name in answer.json["detail"]


@pytest.mark.parametrize("query", ["?include=all", "?label=%3Dx", "?label=", "?model=%ff", "?model"])
async def test_a_filter_that_means_nothing_is_refused(service: Service, query: str) -> None:
    answer = await service.get("/pools" + query)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")


async def test_head_goes_wherever_get_goes(service: Service) -> None:
    await service.register("a")
    whole, head = await service.get(), await service.request("HEAD", "/pools")
    assert head.status == 200
    assert head.headers == whole.headers


async def test_l7_a_list_that_was_never_read_is_503_and_not_empty(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.register("a")
    unread = SourceStatus(
        kind=SourceKind.TABLE,
        name="pools",
        state=SourceState.UNKNOWN,
        reason=SourceReason.TIMEOUT,
        detail="no answer",
    )
    monkeypatch.setattr(MemoryStore, "statuses", lambda store, now_ms: (unread,))
    await service.clock.advance(100)
    for target in ("/pools", "/pools?include=lease", "/pools/watch", path_of(key("a")), "/health/ready"):
        answer = await service.get(target)
        assert (answer.status, answer.json["type"]) == (503, "urn:poolmuster:unavailable")
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["poolmuster-complete"] == "false"
    assert (await service.get()).json["sources"][0]["reason"] == "timeout"
    for target in ("/health/live", "/status", "/routers", "/changes", "/metrics"):
        assert (await service.get(target)).status == 200
