"""The two calls against a server that follows a script: what is sent, what is made of each answer, and of none."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from poolmuster.model.source import SourceReason
from poolmuster.sources.dynamodb.errors import ConditionFailed
from poolmuster.sources.polled.server_clock import ServerClock
from poolmuster.sources.polled.table import StoreError
from tests.support.clock import ManualClock
from tests.support.registrations import key
from tests.support.table_server import item_key

pytest.importorskip("botocore", reason="botocore is not here: it comes with the extra 'dynamodb'")

from botocore.session import Session

from poolmuster.sources.dynamodb.aws import AwsSigner, TableLocation
from poolmuster.sources.dynamodb.client import DynamoClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SOON_S = 5.0


class Script:
    """A server whose next answers are set by the test."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.handler: Handler = self.empty
        self.over = asyncio.Event()
        self.url = ""

    async def empty(self, request: web.Request) -> web.StreamResponse:
        is_query = request.headers["X-Amz-Target"].endswith("Query")
        return web.json_response({"Items": [], "Count": 0} if is_query else {})

    def answer(self, status: int, document: Any, **headers: str) -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            return web.json_response(document, status=status, headers=headers)

        self.handler = handler

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((headers, msgspec.json.decode(await request.read())))
        return await self.handler(request)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    script = Script()
    app = web.Application()
    app.router.add_post("/", script.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    script.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield script
    script.over.set()
    await runner.cleanup()


class OnceRefreshed(AwsSigner):
    """Looks for credentials once, and then when a test calls `refresh`."""

    async def run(self) -> None:
        await self.refresh()


class Made:
    """Calls, what they consumed, and credentials that are looked for only when a test says so."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.clock = clock
        self.consumed: list[tuple[str, float]] = []
        self.table_clock = ServerClock()
        place = TableLocation("t", "r-1", url)
        self.access = OnceRefreshed(Session(), place)
        self.calls = DynamoClient(place, self.access, clock, self.table_clock, lambda *told: self.consumed.append(told))


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "TOKEN")


@pytest.fixture
async def made(script: Script, clock: ManualClock) -> AsyncIterator[Made]:
    made = Made(script.url, clock)
    async with made.calls.opened():
        yield made


async def trouble_of(call: Awaitable[Any]) -> StoreError:
    with pytest.raises(StoreError) as raised:
        await call
    return raised.value


async def test_a_page_is_a_signed_consistent_query_of_the_partition(script: Script, made: Made) -> None:
    script.answer(
        200,
        {
            "Items": [item_key(key())],
            "Count": 1,
            "LastEvaluatedKey": item_key(key()),
            "ConsumedCapacity": {"CapacityUnits": 2.5},
        },
    )
    page = await made.calls.page(None, SOON_S)
    assert page.Items == [item_key(key())]
    assert page.LastEvaluatedKey == item_key(key())
    assert made.consumed == [("read", 2.5)]
    headers, request = script.requests[0]
    assert headers["x-amz-target"] == "DynamoDB_20120810.Query"
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert headers["accept-encoding"] == "identity"
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=KEY/")
    assert "/r-1/dynamodb/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "TOKEN"
    assert request == {
        "TableName": "t",
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "POOL"}},
        "ConsistentRead": True,
        "ReturnConsumedCapacity": "TOTAL",
    }


async def test_the_next_page_starts_where_the_last_ended_and_one_pool_is_asked_for_by_its_key(
    script: Script, made: Made
) -> None:
    await made.calls.page(item_key(key()), SOON_S)
    assert script.requests[0][1]["ExclusiveStartKey"] == item_key(key())
    await made.calls.page(None, SOON_S, sort_key="c#n#a")
    request = script.requests[1][1]
    assert request["KeyConditionExpression"] == "pk = :p AND sk = :s"
    assert request["ExpressionAttributeValues"][":s"] == {"S": "c#n#a"}


async def test_a_put_bears_its_condition(script: Script, made: Made) -> None:
    script.answer(200, {"ConsumedCapacity": {"CapacityUnits": 1}})
    await made.calls.put(item_key(key()), SOON_S, {"ConditionExpression": "x"})
    headers, request = script.requests[0]
    assert headers["x-amz-target"] == "DynamoDB_20120810.PutItem"
    assert (request["Item"], request["ConditionExpression"]) == (item_key(key()), "x")
    assert made.consumed == [("write", 1.0)]


async def test_a_condition_that_does_not_hold_is_told_from_trouble(script: Script, made: Made) -> None:
    script.answer(400, {"__type": "x#ConditionalCheckFailedException"})
    with pytest.raises(ConditionFailed):
        await made.calls.put(item_key(key()), SOON_S)


@pytest.mark.parametrize(
    "document",
    [
        *([], 1, {"Items": 1}, {"Items": [1]}, {"LastEvaluatedKey": "x"}),
        # What a load balancer or a health page may answer: an empty list would be believed.
        *({}, {"message": "ok"}, {"Items": []}, {"Items": [], "Count": 5}),
    ],
)
async def test_an_answer_that_is_no_page_is_a_bad_answer(script: Script, made: Made, document: Any) -> None:
    script.answer(200, document)
    assert (await trouble_of(made.calls.page(None, SOON_S))).reason is SourceReason.BAD_ANSWER


@pytest.mark.parametrize("document", [[], 1, "x", {"message": "ok"}])
async def test_an_answer_that_is_no_puts_is_a_bad_answer(script: Script, made: Made, document: Any) -> None:
    script.answer(200, document)
    assert (await trouble_of(made.calls.put({}, SOON_S))).reason is SourceReason.BAD_ANSWER


async def test_capacity_that_is_no_number_is_not_counted(script: Script, made: Made) -> None:
    for units in ("x", -5, None):
        script.answer(200, {"ConsumedCapacity": {"CapacityUnits": units}})
        await made.calls.put({}, SOON_S)
    assert made.consumed == []


async def test_an_answer_without_end_is_read_to_a_bound(script: Script, made: Made) -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b" " * 1_000_000)
        return response

    script.handler = flood
    trouble = await trouble_of(made.calls.page(None, 60))
    assert (trouble.reason, "more than a page" in trouble.detail) == (SourceReason.BAD_ANSWER, True)


async def test_nesting_without_end_is_a_bad_answer(script: Script, made: Made) -> None:
    async def nested(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b'{"Count":1,"Items":[{"pk":' + b'{"L":[' * 50_000)

    script.handler = nested
    assert (await trouble_of(made.calls.page(None, SOON_S))).reason is SourceReason.BAD_ANSWER
    assert (await trouble_of(made.calls.put({}, SOON_S))).reason is SourceReason.BAD_ANSWER


async def test_netrc_is_not_read(script: Script, made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login bob password x\n")
    monkeypatch.setenv("NETRC", str(netrc))
    script.answer(200, {"Items": [], "Count": 0})
    await made.calls.page(None, SOON_S)
    assert script.requests[0][0]["authorization"].startswith("AWS4-HMAC-SHA256")


async def test_keys_that_were_replaced_are_looked_for(
    script: Script, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.answer(400, {"__type": "x#UnrecognizedClientException"})
    assert (await trouble_of(made.calls.page(None, SOON_S))).reason is SourceReason.ACCESS_DENIED
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEW")
    await made.access.refresh()
    script.answer(200, {"Items": [], "Count": 0})
    await made.calls.page(None, SOON_S)
    assert "Credential=NEW/" in script.requests[-1][0]["authorization"]


async def test_credentials_that_no_header_can_bear_are_told(
    script: Script, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a secret that was made with ``echo``."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "TOKEN\n")
    made.access.refused()
    await made.access.refresh()
    trouble = await trouble_of(made.calls.page(None, SOON_S))
    assert (trouble.reason, "TOKEN" in trouble.detail) == (SourceReason.CREDENTIALS_MISSING, False)


async def test_no_answer_in_time_is_a_timeout(script: Script, made: Made) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await script.over.wait()
        return web.Response()

    script.handler = silent
    trouble = await trouble_of(made.calls.page(None, 0.05))
    assert trouble.reason is SourceReason.TIMEOUT
    assert "Table t (r-1, http://127.0.0.1:" in trouble.detail


async def test_a_connection_cut_in_the_middle_is_unreachable(script: Script, made: Made) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return answer

    script.handler = cut
    assert (await trouble_of(made.calls.page(None, SOON_S))).reason is SourceReason.UNREACHABLE


async def test_nobody_who_listens_is_unreachable(clock: ManualClock) -> None:
    made = Made("http://127.0.0.1:1", clock)
    async with made.calls.opened():
        assert (await trouble_of(made.calls.page(None, SOON_S))).reason is SourceReason.UNREACHABLE


async def test_a_host_without_an_address_is_told_as_such(clock: ManualClock) -> None:
    made = Made("http://no-such-host.invalid", clock)
    async with made.calls.opened():
        assert (await trouble_of(made.calls.page(None, SOON_S))).reason is SourceReason.DNS_FAILED


async def test_a_redirect_is_not_followed(script: Script, made: Made) -> None:
    script.answer(307, {}, Location=script.url)
    assert (await trouble_of(made.calls.page(None, SOON_S))).reason is SourceReason.BAD_ANSWER
    assert len(script.requests) == 1


async def test_without_credentials_nothing_is_sent(
    script: Script, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(script.url, clock)

    def fails() -> None:
        raise RuntimeError

    monkeypatch.setattr(made.access, "_refresh", fails)
    async with made.calls.opened():
        assert (await trouble_of(made.calls.page(None, SOON_S))).reason is SourceReason.CREDENTIALS_MISSING
    assert script.requests == []


async def test_while_open_credentials_are_kept_fresh_and_no_longer(script: Script, made: Made) -> None:
    kept = asyncio.Event()
    ended = asyncio.Event()

    class KeepsFresh(OnceRefreshed):
        async def run(self) -> None:
            await super().run()
            kept.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    location = TableLocation("t", "r-1", script.url)
    client = DynamoClient(location, KeepsFresh(Session(), location), made.clock, made.table_clock, lambda *_: None)
    async with client.opened():
        await kept.wait()
        await client.page(None, SOON_S)
        assert not ended.is_set()
    async with asyncio.timeout(SOON_S):
        await ended.wait()


async def test_the_tables_clock_is_that_of_its_answers_errors_included(script: Script, made: Made) -> None:
    for status, document in ((200, {}), (400, {"__type": "x#ThrottlingException"})):
        at_s = made.clock.wall_ms() // 1000 + 3600 * (1 + status)
        script.answer(status, document, Date=formatdate(at_s, usegmt=True))
        await asyncio.gather(made.calls.page(None, SOON_S), return_exceptions=True)
        assert made.table_clock.now_ms(made.clock.monotonic_ms(), 0) // 1000 == at_s


async def test_what_is_no_error_of_the_table_does_not_set_its_clock(script: Script, made: Made) -> None:
    """A load balancer that answers in its place may be an hour off."""
    script.answer(503, "sorry", Date=formatdate(0, usegmt=True))
    await trouble_of(made.calls.page(None, SOON_S))
    assert made.table_clock.now_ms(0, made.clock.wall_ms()) == made.clock.wall_ms()


async def test_clock_skew_says_by_how_much_and_which_way(script: Script, made: Made) -> None:
    at_s = made.clock.wall_ms() // 1000 - 3600
    document = {"__type": "x#InvalidSignatureException", "message": "Signature not yet current: a is still later than"}
    script.answer(403, document, Date=formatdate(at_s, usegmt=True))
    trouble = await trouble_of(made.calls.page(None, SOON_S))
    assert trouble.reason is SourceReason.CLOCK_SKEW
    assert "ahead of the table's" in trouble.detail
    assert trouble.code == "InvalidSignatureException"


async def test_credentials_that_the_table_calls_expired_are_looked_up_anew(
    script: Script, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.answer(400, {"__type": "x#ExpiredTokenException", "message": "expired"})
    assert (await trouble_of(made.calls.page(None, SOON_S))).reason is SourceReason.CREDENTIALS_EXPIRED
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEWER")
    await made.access.refresh()
    script.answer(200, {"Items": [], "Count": 0})
    await made.calls.page(None, SOON_S)
    assert "Credential=NEWER/" in script.requests[-1][0]["authorization"]


async def test_reads_do_not_wait_for_the_connections_of_writes(script: Script, made: Made) -> None:
    held = asyncio.Event()

    async def holds_puts(request: web.Request) -> web.StreamResponse:
        if request.headers["x-amz-target"].endswith("PutItem"):
            await held.wait()
        return await script.empty(request)

    script.handler = holds_puts
    puts = [asyncio.create_task(made.calls.put({}, SOON_S)) for _ in range(20)]
    await made.calls.page(None, SOON_S)
    held.set()
    await asyncio.gather(*puts)
