"""Whose handshake begins next.

To answer the first message of a handshake takes a millisecond or more, for a signature: what costs a client nothing.
So one begins in each turn of the event loop, and everybody else's requests are answered between them; clients take
turns, by address, so that one with ten thousand connections does not make the others wait for all of them; and only so
many are under way at once, as each holds memory until its client says more.
"""

import asyncio
from collections import OrderedDict, deque


class HandshakeQueue:
    """At most ``at_once`` handshakes are under way."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._under_way = 0
        self._rests = False

    async def enter(self, client: str) -> None:
        """Wait for a turn. Whoever got one calls `leave`; whoever is cancelled before has none."""
        if not self._waiting and self._may_begin():
            self._begin()
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """A handshake has ended, well or not."""
        self._under_way -= 1
        if not self._rests:
            self._next()

    def _may_begin(self) -> bool:
        return not self._rests and self._under_way < self._at_once

    def _begin(self) -> None:
        self._under_way += 1
        self._rests = True
        self._loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._rests = False
        self._next()

    def _next(self) -> None:
        """Let the first of the address begin that has waited longest."""
        while self._waiting and self._may_begin():
            client, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.cancelled():
                self._begin()
                turn.set_result(None)
