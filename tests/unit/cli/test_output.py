"""Text for people: escaping, tables, times, the lines of a watch."""

import asyncio
import json
import unicodedata
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from poolmuster.cli.service_options import why_estimated
from poolmuster.cli.tables import drawn, key_of_pool, plain, pool_table
from poolmuster.cli.text import duration, instant, key_text, visible, visible_json
from poolmuster.cli.watch_view import count_of, first_contact, lines_of, objects, state_line
from poolmuster.client import SourceReport, UpdateKind
from poolmuster.client.errors import Unreachable
from poolmuster.client.events import read_event
from poolmuster.client.responses import model_names
from poolmuster.model.errors import InvalidInput
from poolmuster.model.key import PoolKey, check_key, parse_key
from tests.unit.client.fakes import ONE, Scene, event, pool, pool_key, snapshot

DANGEROUS = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text())
def test_nothing_dangerous_reaches_a_terminal(text: str) -> None:
    assert not DANGEROUS & {unicodedata.category(char) for char in visible(text)}


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_for_a_terminal_is_the_same_json(value: object) -> None:
    shown = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert not DANGEROUS & {unicodedata.category(char) for char in shown}


@given(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)] * 3))
def test_a_printed_key_is_one_safe_word_that_reads_back(parts: tuple[str, str, str]) -> None:
    key = PoolKey(*parts)
    text = key_text(key)
    assert text.split() == [text]
    assert not DANGEROUS & {unicodedata.category(char) for char in text}
    try:
        check_key(key)
    except InvalidInput:
        return
    assert parse_key(text) == key


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(0), "0 s"),
        (timedelta(milliseconds=-5), "0 s"),
        (timedelta(milliseconds=1), "1 s"),
        (timedelta(seconds=59.5), "1 min"),
        (timedelta(minutes=2, seconds=5), "2 min 5 s"),
        (timedelta(hours=3), "3 h"),
        (timedelta(hours=3, seconds=5), "3 h"),
        (timedelta(days=2, hours=4, minutes=6), "2 d 4 h"),
    ],
)
def test_lengths_of_time(length: timedelta, text: str) -> None:
    assert duration(length.total_seconds() * 1000) == text


@pytest.mark.parametrize("at_ms", [None, "x", True, 10**30, float("nan"), -(10**30)])
def test_what_is_no_instant_is_a_dash(at_ms: object) -> None:
    assert instant(at_ms) == "-"


def test_wide_characters_are_aligned() -> None:
    assert plain(["A", "B"], [["模型", "x"], ["ab", "y"], ["", ""]]) == ["A      B", "模型   x", "ab     y", "-      -"]


def test_a_drawn_table_takes_no_markup_from_its_cells() -> None:
    console = Console(width=60, force_terminal=False)
    with console.capture() as capture:
        console.print(drawn(["NAME"], [["[bold]x[/bold]\x1b[2J"]]))
    assert "[bold]x[/bold]\\x1b[2J" in capture.get()


@given(
    st.dictionaries(
        st.sampled_from(["cluster_id", "dgd_name", "location", "models", "labels", "weight", "frontend_url"]),
        st.none()
        | st.integers()
        | st.text()
        | st.lists(st.none() | st.dictionaries(st.just("aliases"), st.integers())),
    )
)
def test_a_pool_of_any_shape_has_a_row(document: dict[str, object]) -> None:
    for wide in (True, False):
        columns, [row] = pool_table([document], wide=wide)
        assert len(row) == len(columns)
    assert isinstance(model_names(document), list)
    assert key_of_pool(document) == "-"


def test_why_a_list_is_estimated() -> None:
    assert why_estimated(()) == "the service does not say why"
    known = SourceReport(kind="table", name="t", state="stale", reason="timeout", detail="slow", clears_in_ms=2_000)
    unknown = SourceReport(kind="peer", name="p", state="unknown")
    assert why_estimated((known,)) == "table t is stale (timeout: slow); complete in 2 s"
    assert why_estimated((known, unknown)) == "table t is stale (timeout: slow); peer p is unknown"


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        (snapshot("a"), ["snapshot  1 pool, complete", "listed    c/n/a"]),
        (event("added", pool=pool("\x1b", models=[{"id": "m", "aliases": ["x"]}])), ["added     c/n/%1B  m, x"]),
        (
            event("removed", key=pool_key("a"), cause="deregistered", reason="operator"),
            ["removed   c/n/a  deregistered: operator"],
        ),
        (event("removed", key=pool_key("a"), cause="expired", reason=None), ["removed   c/n/a  expired"]),
        (event("completeness", complete=False, sources=[]), ["list      estimated: the service does not say why"]),
        (event("ping"), []),
    ],
)
def test_the_lines_of_a_watch(told: dict[str, object], lines: list[str]) -> None:
    read = read_event(json.dumps(told).encode())
    assert read is not None
    assert lines_of(read) == lines


async def test_the_line_above_the_live_table() -> None:
    async with Scene() as scene:
        await scene.send(snapshot("a", complete=False))
        assert state_line(scene.follower) == "1 pool, estimated: the service does not say why"
        await scene.send(event("completeness", 2, complete=True, sources=[]))
        assert state_line(scene.follower) == "1 pool, complete"
        scene.stream.cut(Unreachable(f"{ONE} is gone."))
        await scene.clock.advance(200)
        assert state_line(scene.follower) == f"1 pool, as of 1 s ago: {ONE} is gone."
    assert count_of(2) == "2 pools"


async def test_the_objects_of_a_watch_come_to_the_list_also_where_some_were_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Scene() as scene:
        scene.updates._limit = 4
        changes = [event("added", n, pool=pool(f"{n}", odd=2**80)) for n in range(2, 6)]
        await scene.send(snapshot("a"), *changes, event("removed", 6, key=pool_key("3"), cause="expired", reason=None))
        printing = asyncio.create_task(objects(scene.follower, scene.updates))
        await scene.clock.settle()
        printed = capsys.readouterr()
        held = json.loads(scene.follower.pools_json)
        listed: dict[str, dict[str, object]] = {}
        for told in map(json.loads, printed.out.splitlines()):
            if told["type"] == "snapshot":
                listed = {each["dgd_name"]: each for each in told["pools"]}
            elif told["type"] == "removed":
                listed.pop(told["key"]["dgd_name"], None)
            else:
                listed[told["pool"]["dgd_name"]] = told["pool"]
        assert [listed[name] for name in sorted(listed)] == held
        assert len(held) == 4
        assert "left out" in printed.err
    await printing


async def test_a_first_list_that_overran_its_reader_is_a_contact_too() -> None:
    async with Scene() as scene:
        scene.updates._limit = 1
        await scene.send(snapshot("a"))
        contact = asyncio.create_task(first_contact(scene.updates, 1))
        await scene.clock.settle()
        assert contact.done()
        assert UpdateKind.OVERRUN in [update.kind for update in scene.drain()]
