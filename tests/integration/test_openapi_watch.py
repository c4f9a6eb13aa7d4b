"""The watch, which never ends, against the OpenAPI document; and what a real process answers against the types."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import requests
import schemathesis
from hypothesis import given

from poolmuster.api import schemas as shapes
from poolmuster.model.schema import RegistrationResponse
from tests.support.fuzzing import fuzzing
from tests.support.ports import free_port
from tests.support.process import poolmuster
from tests.support.samples import OTHER_PATH, PATH, REGISTRATION

pytestmark = pytest.mark.integration

NDJSON = "application/x-ndjson"


@pytest.fixture
async def base_url(tmp_path: Path) -> AsyncIterator[str]:
    listen = f"127.0.0.1:{free_port()}"
    ready_url = f"http://{listen}/health/ready"
    async with poolmuster("serve", "--listen", listen, folder=tmp_path, ready_url=ready_url):
        yield f"http://{listen}"


async def test_the_watch_answers_as_described_whatever_it_is_asked(base_url: str) -> None:
    await asyncio.to_thread(_fuzz, base_url)


def _fuzz(base_url: str) -> None:
    watch = schemathesis.openapi.from_url(f"{base_url}/openapi.json")["/pools/watch"]["GET"]
    seen: set[int] = set()
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

        @given(case=watch.as_strategy(generation_mode=mode))
        @fuzzing
        def ask(case: Any) -> None:
            asked = case.as_transport_kwargs(base_url=base_url)
            with requests.Session() as session, session.request(**asked, stream=True, timeout=10) as answer:
                seen.add(answer.status_code)
                _check(watch, answer)

        ask()
    assert 200 in seen


def _check(watch: Any, answer: requests.Response) -> None:
    described = watch.definition.raw["responses"]
    assert str(answer.status_code) in described, answer.status_code
    assert answer.status_code < 500
    for name in ("poolmuster-revision", "poolmuster-complete", "poolmuster-instance"):
        assert name in answer.headers
    if answer.status_code == 200:
        assert answer.headers["content-type"].partition(";")[0] in ("text/event-stream", NDJSON)
        assert next(answer.iter_content(64))
    else:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code


def _has_shape(found: Any, kind: Any) -> None:
    assert msgspec.json.decode(msgspec.json.encode(msgspec.convert(found, kind))) == found


async def test_the_answers_of_a_real_process_have_the_shapes_that_are_described(base_url: str) -> None:
    async with aiohttp.ClientSession(base_url) as session:
        watch = await session.get("/pools/watch", headers={"accept": NDJSON})
        for document in (REGISTRATION, REGISTRATION | {"weight": 1}):
            async with session.post("/pools", json=document) as answer:
                _has_shape(await answer.json(), RegistrationResponse)
        for path, kind in (
            ("/pools", shapes.PoolListBody),
            ("/pools?include=lease&include=unlisted", shapes.PoolListBody),
            (PATH, shapes.OnePool),
            ("/routers", shapes.Routers),
            ("/changes", shapes.Changes),
            ("/status", shapes.Status),
        ):
            async with session.get(path) as answer:
                assert answer.status == 200
                _has_shape(await answer.json(), kind)
        async with session.delete(PATH) as answer:
            assert answer.status == 204
        async with session.get(PATH) as answer:
            _has_shape(await answer.json(), shapes.OnePool)
        async with session.get(OTHER_PATH) as answer:
            assert answer.status == 404
        for event_type in ("snapshot", "added", "changed", "removed"):
            event = msgspec.json.decode(await watch.content.readuntil(b"\n"))
            assert event["type"] == event_type
            _has_shape(event, shapes.WatchEvent)
        watch.close()
