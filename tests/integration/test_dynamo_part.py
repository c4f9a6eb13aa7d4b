"""The fixture `dynamo_frontend` itself: an engine is listed, leaves, is killed and comes back."""

import aiohttp
import pytest

from tests.support.dynamo import MODEL, Dynamo

pytestmark = [pytest.mark.integration, pytest.mark.dynamo]


async def test_a_model_is_listed_exactly_while_its_engine_runs(dynamo_frontend: Dynamo) -> None:
    assert await dynamo_frontend.models() == [MODEL]
    await dynamo_frontend.stop_engine()
    await dynamo_frontend.wait_models([], timeout_s=5)
    await dynamo_frontend.start_engine()
    await dynamo_frontend.kill_engine()
    await dynamo_frontend.wait_models([], timeout_s=40)
    await dynamo_frontend.start_engine()


async def test_the_engine_answers_chat(dynamo_frontend: Dynamo) -> None:
    question = {"model": MODEL, "messages": [{"role": "user", "content": "hello world"}], "max_tokens": 4}
    url = f"{dynamo_frontend.url}/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, json=question) as answer:
        assert answer.status == 200
        assert (await answer.json())["usage"]["completion_tokens"] == 4
