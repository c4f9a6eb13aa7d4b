"""The OpenAPI document is true: fuzzed against the real process, with no undocumented answer and no 5xx."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import schemathesis
from hypothesis import given
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok

from tests.support.fuzzing import fuzzing
from tests.support.ports import free_port
from tests.support.process import poolmuster

pytestmark = pytest.mark.integration

ENDLESS = ("GET", "/pools/watch")


@pytest.fixture
async def base_url(tmp_path: Path) -> AsyncIterator[str]:
    url = f"http://127.0.0.1:{free_port()}"
    listen = ("--listen", url.removeprefix("http://"))
    async with poolmuster("serve", *listen, folder=tmp_path, ready_url=f"{url}/health/ready"):
        yield url


async def test_no_answer_is_undocumented_and_none_is_a_5xx(base_url: str) -> None:
    await asyncio.to_thread(_fuzz, base_url)


def _fuzz(base_url: str) -> None:
    tried = 0
    for result in schemathesis.openapi.from_url(f"{base_url}/openapi.json").get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if (operation.method.upper(), operation.path) == ENDLESS:
            continue
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            tried += _try(operation, mode)
    assert tried > 20


def _try(operation: Any, mode: schemathesis.GenerationMode) -> bool:
    """Fuzz one operation. Returns whether there was anything to try: without parameters nothing can be wrong."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @fuzzing
    def run(case: Any) -> None:
        # What exactly is refused is the business of other tests, which know the rules and not the schema alone.
        case.call_and_validate(
            timeout=10,
            excluded_checks=[
                schemathesis.checks.unsupported_method,
                schemathesis.checks.negative_data_rejection,
                schemathesis.checks.positive_data_acceptance,
            ],
        )

    try:
        run()
    except Unsatisfiable:
        return False
    return True


async def test_the_description_and_the_pages_are_served_whole(base_url: str) -> None:
    async with aiohttp.ClientSession(base_url) as session:
        for path, media_type in (("/", "text/html"), ("/docs", "text/html"), ("/openapi.json", "application/json")):
            async with session.get(path) as answer:
                text = await answer.text()
                assert answer.status == 200
                assert answer.content_type == media_type
            async with session.head(path) as answer:
                assert answer.status == 200
            if media_type == "text/html":
                assert "default-src 'none'" in answer.headers["content-security-policy"]
                assert "<script" not in text
                assert re.search(r"(?:src|href)=.?\w*:?//|@import|url\(", text) is None
