"""The DynamoDB table under the store: pages and their retry, conditions as expressions, credentials."""

import asyncio
import gc

import pytest

from poolmuster.model.errors import RelayDeregistered
from poolmuster.model.source import SourceReason, SourceState
from poolmuster.sources.dynamodb.items import QueryOutput
from poolmuster.sources.polled.store import PUT_LIMIT_S, READ_LIMIT_MS
from poolmuster.sources.polled.table import StoreError
from tests.support.clock import ManualClock
from tests.support.registrations import deregistration, key, registration
from tests.support.table_server import item_key
from tests.unit.sources.polled.worlds import LEASE_MS, failure

pytest.importorskip("botocore", reason="botocore is not here: it comes with the extra 'dynamodb'")

from poolmuster.sources.dynamodb.table import ATTEMPT_S
from tests.unit.sources.dynamodb.worlds import DynamoWorld, page_of


@pytest.fixture
def world(clock: ManualClock) -> DynamoWorld:
    return DynamoWorld(clock)


# Pages.


async def test_a_failed_page_is_tried_once_more_within_the_same_two_seconds(world: DynamoWorld) -> None:
    world.client.errors = [failure()]
    await world.read_once()
    assert world.recorder.reads == ["good"]
    assert world.recorder.retries == 1
    assert world.limits == [ATTEMPT_S, READ_LIMIT_MS / 1000]


async def test_a_second_failure_in_one_read_fails_it(world: DynamoWorld) -> None:
    world.client.errors = [failure(), failure(SourceReason.THROTTLED)]
    await world.read_once()
    assert world.recorder.reads == ["throttled"]
    assert world.updates == []
    assert world.failures == 1


@pytest.mark.parametrize(
    "reason",
    [
        SourceReason.ACCESS_DENIED,
        SourceReason.TABLE_MISSING,
        SourceReason.CREDENTIALS_MISSING,
        SourceReason.CREDENTIALS_EXPIRED,
        SourceReason.CLOCK_SKEW,
    ],
)
async def test_what_no_retry_can_cure_is_not_tried_again(world: DynamoWorld, reason: SourceReason) -> None:
    world.client.errors = [failure(reason)]
    await world.read_once()
    assert world.recorder.reads == [reason]
    assert world.recorder.retries == 0


async def test_the_retry_gets_what_is_left_of_two_seconds_and_none_where_nothing_is(world: DynamoWorld) -> None:
    world.client.takes_ms = 1_200
    world.client.errors = [failure()]
    read = asyncio.create_task(world.read_once())
    await world.clock.advance(3_000)
    await read
    assert world.limits == [ATTEMPT_S, pytest.approx(0.8)]
    world.client.pages.clear()
    world.client.takes_ms = READ_LIMIT_MS
    world.client.errors = [failure()]
    read = asyncio.create_task(world.read_once())
    await world.clock.advance(3_000)
    await read
    assert len(world.limits) == 1


async def test_all_pages_are_read_and_a_page_key_that_comes_twice_fails_the_read(world: DynamoWorld) -> None:
    world.has("a")
    world.has("b")
    one, two = ([item] for item in world.client.items.values())
    world.client.script = [page_of(one, item_key(key("a"))), page_of(two)]
    await world.read_once()
    assert [(partition, start) for partition, start, _ in world.client.pages] == [
        ("POOL", None),
        ("POOL", item_key(key("a"))),
    ]
    assert world.renewed == {key("a"), key("b")}
    world.client.script = [page_of(one, item_key(key("a"))) for _ in range(2)]
    await world.read_once()
    assert world.recorder.reads == ["good", "bad_answer"]


async def test_a_read_that_fails_by_an_unknown_error_ends_nothing(world: DynamoWorld) -> None:
    async def page(*_: object, **__: object) -> QueryOutput:
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.client, "page", page)
        await world.read_once()
    assert world.recorder.reads == ["internal"]
    await world.read_once()
    assert world.recorder.reads[-1] == "good"


async def test_an_error_of_an_earlier_read_is_neither_reported_again_nor_referred_to(world: DynamoWorld) -> None:
    """An exception that is raised anew with each read keeps the frames of all of them, and all that they had read."""
    world.client.errors = [failure(SourceReason.THROTTLED), failure(SourceReason.THROTTLED)]
    await world.read_once()
    one, two = (page_of([], item_key(key(name))) for name in "ab")
    world.client.takes_ms = 1_200
    for _ in range(2):
        world.client.script = [one, two]
        update = asyncio.create_task(world.read_once())
        await world.clock.advance(5_000)
        await update
        assert world.source.reason is SourceReason.TIMEOUT
        gc.collect()
        raised = [each for each in gc.get_objects() if isinstance(each, StoreError) and each.__traceback__ is not None]
        assert raised == []
    assert world.recorder.reads == ["throttled", "timeout", "timeout"]


# What is written.


async def test_a_put_bears_the_condition_that_the_relay_has_not_left(world: DynamoWorld) -> None:
    await world.store.put(registration("a", "r"))
    item, condition, limit_s = world.client.puts[0]
    assert item["writer"] == {"S": "home/boot"}
    assert item["lease_ends_ms"] == {"N": str(world.clock.wall_ms() + LEASE_MS)}
    assert condition == {
        "ConditionExpression": "attribute_not_exists(left_relay_id) OR left_relay_id <> :relay"
        " OR expires_at <= :now OR lease_ends_ms <> :left",
        "ExpressionAttributeValues": {
            ":relay": {"S": "r"},
            ":now": {"N": str(world.clock.wall_ms() // 1000)},
            ":left": {"N": "0"},
        },
    }
    assert limit_s == PUT_LIMIT_S
    await world.store.put(registration("a"))
    assert world.client.puts[1][1] is None
    world.client.refuse = lambda condition: True
    with pytest.raises(RelayDeregistered):
        await world.store.put(registration("a", "r"))


async def test_a_relay_leaves_on_condition_that_it_is_the_latest(world: DynamoWorld) -> None:
    world.has()
    await world.store.deregister(deregistration("a", "r"))
    item, condition, _ = world.client.puts[0]
    assert item["lease_ends_ms"] == {"N": "0"}
    assert condition == {
        "ConditionExpression": "relay_id = :relay",
        "ExpressionAttributeValues": {":relay": {"S": "r"}},
    }


async def test_an_operator_deregisters_on_condition_that_the_end_is_as_read(world: DynamoWorld) -> None:
    world.has()
    world.client.items["c#n#a"]["lease_ends_ms"] = {"N": "1.8E+12"}
    await world.store.deregister(deregistration("a"))
    assert world.client.puts[0][1] == {
        "ConditionExpression": "lease_ends_ms = :ends",
        "ExpressionAttributeValues": {":ends": {"N": "1.8E+12"}},
    }


async def test_an_operator_can_deregister_an_item_without_an_end(world: DynamoWorld) -> None:
    world.has()
    del world.client.items["c#n#a"]["lease_ends_ms"]
    await world.store.deregister(deregistration("a"))
    assert world.client.puts[0][1] == {"ConditionExpression": "attribute_not_exists(lease_ends_ms)"}


# Credentials.


async def test_run_looks_for_credentials_and_reads_until_it_is_cancelled(
    world: DynamoWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    task = asyncio.create_task(world.store.run(world))
    async with asyncio.timeout(10):
        while not world.recorder.reads:
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "Credential=KEY/" in world.signer.sign("Query", b"{}")["Authorization"]


async def test_the_source_has_the_name_of_the_table(world: DynamoWorld) -> None:
    await world.read_once()
    assert (world.source.name, world.source.state) == ("t", SourceState.FRESH)
