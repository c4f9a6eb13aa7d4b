"""The order in which TLS handshakes begin.

The answer to a handshake's first message takes a millisecond or more, for a signature, and costs the client nothing.
So one handshake begins in each turn of the event loop, and requests are answered between them. Client addresses
alternate, so that ten thousand connections from one do not delay the others. The number of handshakes in progress is
bounded, as each holds memory until its client answers, and one address has half of them at most.
"""

import asyncio
from collections import Counter, OrderedDict, deque


class HandshakeQueue:
    """At most ``at_once`` handshakes are in progress."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._at_once_per_client = max(1, at_once // 2)
        self._loop = asyncio.get_running_loop()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._in_progress: Counter[str] = Counter()
        self._paused = False

    async def enter(self, client: str) -> None:
        """Wait until a handshake of ``client`` may begin. `leave` must follow, unless this wait is cancelled."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(client)
            raise

    def leave(self, client: str) -> None:
        """A handshake of ``client`` has ended, or failed."""
        self._in_progress[client] -= 1
        if not self._in_progress[client]:
            del self._in_progress[client]
        self._next()

    def _next(self) -> None:
        """Begin the next handshake, unless one began in this turn of the event loop or no place is free."""
        while not self._paused and self._in_progress.total() < self._at_once:
            # The search passes over two addresses at most: more cannot have half of the places.
            client = next((each for each in self._waiting if self._has_place(each)), None)
            if client is None:
                return
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.cancelled():
                self._in_progress[client] += 1
                self._paused = True
                self._loop.call_soon(self._resume)
                turn.set_result(None)

    def _has_place(self, client: str) -> bool:
        return self._in_progress[client] < self._at_once_per_client

    def _resume(self) -> None:
        self._paused = False
        self._next()
