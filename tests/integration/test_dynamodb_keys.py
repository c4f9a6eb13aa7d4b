"""Pool keys on real servers, from the HTTP interface to the item and back."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from poolmuster.model.key import STORAGE_KEY_LIMIT_BYTES, PoolKey, validate_part
from tests.support.instances import Server, eventually, instance
from tests.support.registrations import registration
from tests.support.service import path_of
from tests.support.table_server import Table, Unfaithful, live_attributes
from tests.support.variables import variable

pytestmark = pytest.mark.integration

EXAMPLES = max(1, int(variable("EXAMPLES", "60")) // 3)
LEASE_S = 600.0
"""No lease ends while many keys are written."""


@pytest.fixture(params=["table", "dynalite_table"])
def each_table(request: pytest.FixtureRequest) -> Table:
    """A table on each of the real servers."""
    table: Table = request.getfixturevalue(request.param)
    return table


@pytest.fixture
async def server(tmp_path: Path, each_table: Table) -> AsyncIterator[Server]:
    async with instance(tmp_path, each_table.name, each_table.server.url, lease_s=LEASE_S) as found:
        await eventually(lambda: _lists(found, set()))
        yield found


async def _lists(server: Server, keys: set[PoolKey]) -> bool:
    status, found = await server.get()
    if status != 200 or not found["complete"]:
        return False
    assert len(found["pools"]) == len({_key(pool) for pool in found["pools"]})
    return {_key(pool) for pool in found["pools"]} == keys


def _key(pool: dict[str, Any]) -> PoolKey:
    return PoolKey(pool["cluster_id"], pool["namespace"], pool["dgd_name"])


async def _register(server: Server, key: PoolKey) -> int:
    content = {"cluster_id": key.cluster_id, "namespace": key.namespace, "dgd_name": key.dgd_name}
    async with server.session.post("/pools", json=content) as answer:
        await answer.read()
        return answer.status


# Round trips

AWKWARD = ["#", "%", "/", "%23", "%25", "%2F", "##", "..", "-", "\u00e9", "e\u0301", "\u212b", "\u00e5", "\U0001f600"]
AWKWARD += ["\x00", "\u200b", "\ufeff", "\u202e", "\uffff", "\U0010ffff", "A", "a", "ss", "\u00df", " "]
PARTS = st.one_of(
    st.lists(st.sampled_from(AWKWARD), min_size=1, max_size=4).map("".join), st.text(min_size=1, max_size=20)
).filter(lambda part: validate_part(part) is None)
KEYS = st.builds(PoolKey, PARTS, PARTS, PARTS)


def _relatives(key: PoolKey) -> list[PoolKey]:
    """Keys that a careless way of writing would take for ``key``."""
    one, two, three = key.parts
    found = [PoolKey(f"{one}#{two}", two, three), PoolKey(one, f"{two}#{three}", three)]
    found += [PoolKey(f"{one}#x", two, three), PoolKey(one, f"x#{two}", three)]
    found += [PoolKey(*(part.replace("%", "%25").replace("#", "%23") for part in key.parts))]
    found += [PoolKey(one.upper(), two, three), PoolKey(one.casefold(), two, three)]
    return found


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(
    max_examples=EXAMPLES,
    # One server for all examples: each ends with its pools gone.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(keys=st.lists(KEYS, min_size=1, max_size=12))
@example(
    keys=[PoolKey("a#b", "c", "d"), PoolKey("a", "b#c", "d"), PoolKey("a%23b", "c", "d"), PoolKey("a", "b", "c#d")]
)
async def test_d6_any_unicode_key_round_trips_and_two_keys_never_share_an_item(
    server: Server, each_table: Table, keys: list[PoolKey]
) -> None:
    wanted = {relative for key in keys for relative in (key, *_relatives(key))}
    before = {item["sk"]["S"] for item in each_table.items()}
    try:
        for key in wanted:
            assert await _register(server, key) == 201
        await eventually(lambda: _lists(server, wanted))
        after = [item["sk"]["S"] for item in each_table.items()]
        assert len(after) == len(set(after)) == len(before | {key.storage_key for key in wanted})
        for key in wanted:
            status, found = await server.get(path_of(key))
            assert (status, _key(found["pool"])) == (200, key)
    finally:
        for key in wanted:
            async with server.session.delete(path_of(key)) as answer:
                assert answer.status == 204
    await eventually(lambda: _lists(server, set()))


# Length


def _long(size: int, character: str) -> PoolKey:
    """A key that is ``size`` bytes in its stored form, as far as possible of ``character``, each as it is stored."""
    stored_bytes = len(PoolKey("", "", character).storage_key.encode()) - 2
    count, rest = divmod(size - len("c#n#"), stored_bytes)
    return PoolKey("c", "n", character * count + "x" * rest)


@pytest.mark.parametrize("character", ["x", "\u00e9", "\u4e16", "\U0001f600", "#", "%"])
async def test_d6_a_key_of_1024_bytes_stored_is_a_pool_and_one_more_is_400(
    server: Server, each_table: Table, character: str
) -> None:
    longest, too_long = _long(STORAGE_KEY_LIMIT_BYTES, character), _long(STORAGE_KEY_LIMIT_BYTES + 1, character)
    assert await _register(server, longest) == 201
    assert await _register(server, too_long) == 400
    await eventually(lambda: _lists(server, {longest}))
    assert [item["sk"]["S"] for item in each_table.items()] == [longest.storage_key]


@pytest.mark.parametrize("character", ["x", "\u00e9"])
def test_d6_the_limit_is_the_tables_own(each_table: Table, character: str) -> None:
    from botocore.exceptions import ClientError  # late: what needs no extra is collected without it

    item = live_attributes(registration(), ends_ms=1, lease_ms=1, writer="-/b")
    each_table.put(item | {"sk": {"S": _long(STORAGE_KEY_LIMIT_BYTES, character).storage_key}})
    one_more = item | {"sk": {"S": _long(STORAGE_KEY_LIMIT_BYTES + 1, character).storage_key}}
    if Unfaithful.KEY_CHARACTERS in each_table.server.differs and not character.isascii():
        each_table.put(one_more)  # should this fail one day, the server has learnt, and the exception can go
        return
    with pytest.raises(ClientError, match="ValidationException"):
        each_table.put(one_more)
