"""Lines come out whole however their bytes are cut, and neither a line nor a body has more bytes than its limit."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.platform.ndjson import LineSplitter, SizeLimitExceeded, read_body


@given(st.lists(st.binary(max_size=20)))
def test_lines_come_out_however_they_are_cut(chunks: list[bytes]) -> None:
    splitter = LineSplitter(1_000_000)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert lines == b"".join(chunks).split(b"\n")[:-1]


def test_empty_lines_and_other_line_breaks_are_kept() -> None:
    whole = b'{"a":1}\n{"b":2}\n\n{"c":"\xe2\x80\xa8\r"}\n'
    for size in range(1, len(whole)):
        splitter = LineSplitter(100)
        found = [line for at in range(0, len(whole), size) for line in splitter.feed(whole[at : at + size])]
        assert found == [b'{"a":1}', b'{"b":2}', b"", b'{"c":"\xe2\x80\xa8\r"}']


def test_a_line_has_a_bound() -> None:
    splitter = LineSplitter(10)
    assert list(splitter.feed(b"0123456789\n0123456789")) == [b"0123456789"]
    with pytest.raises(SizeLimitExceeded, match="over 10 bytes"):
        list(splitter.feed(b"x"))


def test_the_lines_before_one_that_is_too_long_come_out() -> None:
    lines = LineSplitter(3).feed(b"a\nbc\nlong\n")
    assert [next(lines), next(lines)] == [b"a", b"bc"]
    with pytest.raises(SizeLimitExceeded):
        next(lines)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"x" * 1_000)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


async def test_a_body_is_read_up_to_its_limit_and_no_further(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as response:
            assert await read_body(response, 1_000) == b"x" * 1_000
        async with session.get(url) as response:
            with pytest.raises(SizeLimitExceeded) as caught:
                await read_body(response, 999)
    assert caught.value.limit_bytes == 999
