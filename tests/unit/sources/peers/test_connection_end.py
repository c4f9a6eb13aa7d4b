"""A connection that ended leaves nothing to the garbage collector, which never sees what was frozen."""

import weakref

import pytest

from poolmuster.sources.peers.transport import LIST_PATH
from tests.support.garbage import collector_stopped
from tests.support.peer_network import nodes


@pytest.mark.parametrize("during", ["a stream", "a tried stream", "a snapshot"])
async def test_nothing_of_a_peer_that_left_waits_for_the_garbage_collector(during: str) -> None:
    async with nodes(2) as (net, found):
        address = found[1].address
        if during == "a tried stream":
            net.no_streams.add(address)
        await found[1].put("a")
        await net.advance(4_500)
        running = found[0].store._running[address]
        if during == "a snapshot":
            net.cut(address)
            running.connection._full_sync = running.connection._start(running.connection._read_response, LIST_PATH)
            await net.settle()
        with collector_stopped():
            left = weakref.ref(running.connection), weakref.ref(running.connection._importer)
            running.task.cancel()
            del running, found[0].store._running[address]
            await net.settle()
            assert [ref() for ref in left] == [None, None]
