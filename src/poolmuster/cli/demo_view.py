"""What the demo shows: the live list and what happens to it, redrawn on a terminal, line by line in a pipe."""

import asyncio
import sys
from collections import deque

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from poolmuster.cli.escape import visible
from poolmuster.cli.pool_rows import columns, row
from poolmuster.cli.tables import drawn, on_terminal
from poolmuster.cli.times import duration
from poolmuster.cli.watch_view import lines_of
from poolmuster.client import Follower, SourceReport, Subscription, UpdateKind
from poolmuster.client.events import CompletenessChanged, Snapshot

REDRAW_S = 0.5
COUNTDOWN_S = 5.0
EVENTS_SHOWN = 8


class Countdown:
    """When the list will be complete, counted down from what the service said last."""

    def __init__(self) -> None:
        self._ends_s: float | None = None

    def heard(self, now_s: float, sources: tuple[SourceReport, ...]) -> None:
        """The service told of its sources."""
        left_ms = [source.clears_in_ms for source in sources if not source.is_fresh]
        known = [ms for ms in left_ms if ms is not None]
        self._ends_s = now_s + max(known) / 1000 if known and len(known) == len(left_ms) else None

    def text(self, now_s: float) -> str:
        """For people; empty where nobody knows."""
        return "" if self._ends_s is None else f"complete in {duration(max(0.0, self._ends_s - now_s) * 1000)}"


class DemoView:
    """Shows what ``follower`` holds. `run` it until cancelled; `say` lines meanwhile."""

    def __init__(self, follower: Follower, updates: Subscription) -> None:
        self._follower = follower
        self._updates = updates
        self._countdown = Countdown()
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._console = Console(file=sys.stdout, highlight=False)
        self._live: Live | None = None

    def say(self, line: str) -> None:
        """One line that stays."""
        if self._live is not None:
            self._live.console.print(Text(visible(line)))
        else:
            click.echo(visible(line))
            sys.stdout.flush()

    async def run(self) -> None:
        """Show the list until cancelled."""
        if not on_terminal():
            await self._lines()
        with Live(console=self._console, auto_refresh=False, screen=False) as live:
            self._live = live
            try:
                while True:
                    live.update(self._drawing(), refresh=True)
                    await self._next_updates(REDRAW_S)
            finally:
                live.update(self._drawing(), refresh=True)
                self._live = None

    async def _lines(self) -> None:
        loop = asyncio.get_running_loop()
        told_s = loop.time()
        while True:
            for line in await self._next_updates(COUNTDOWN_S):
                self.say(line)
                told_s = loop.time()
            if loop.time() - told_s >= COUNTDOWN_S and (count := self._count(loop.time())):
                told_s = loop.time()
                self.say(f"          {self._summary()}: {count}")

    async def _next_updates(self, limit_s: float) -> list[str]:
        """Take in the next update, if one comes in time, as lines for people."""
        loop = asyncio.get_running_loop()
        try:
            update = await asyncio.wait_for(anext(self._updates), limit_s)
        except TimeoutError:
            return []
        lines: list[str] = []
        if isinstance(update.event, Snapshot | CompletenessChanged):
            self._countdown.heard(loop.time(), update.event.sources)
        if update.event is not None:
            lines = lines_of(update.event)
        elif update.kind is UpdateKind.DISCONNECTED and update.error is not None:
            lines = [f"lost      {update.error.detail}"]
        self._events.extend(lines)
        return lines

    def _count(self, now_s: float) -> str:
        return "" if self._follower.complete else self._countdown.text(now_s)

    def _summary(self) -> str:
        count = len(self._follower.pools)
        return f"{count} pool{'' if count == 1 else 's'}"

    def _drawing(self) -> Group:
        rows = [row(pool, wide=False) for pool in self._follower.pools.values()]
        if self._follower.age_ms is None:
            state = Text("as the first list has not come yet", style="dim")
        elif self._follower.connected_url is None:
            state = Text("the service cannot be reached; this is the list as it was", style="red")
        elif self._follower.complete:
            state = Text("complete: no live pool is missing", style="green")
        else:
            count = self._count(asyncio.get_running_loop().time()) or "nobody knows when it will be complete"
            state = Text(f"estimated: pools may be missing; {count}", style="yellow")
        return Group(
            Text(),
            drawn(columns(wide=False), rows),
            Text.assemble(f"{self._summary()}, ", state),
            Text(),
            *(Text(visible(line), style="dim", no_wrap=True, overflow="ellipsis") for line in self._events),
            Text("Ctrl-C ends it.", style="dim"),
        )
