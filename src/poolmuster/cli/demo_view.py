"""The demo's view: the live list and its latest events, redrawn on a terminal, line by line in a pipe."""

import asyncio
import sys
from collections import deque

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from poolmuster.cli.service_options import complete_in
from poolmuster.cli.tables import drawn, on_terminal, pool_table
from poolmuster.cli.text import visible
from poolmuster.cli.watch_view import count_of, lines_of, state_line
from poolmuster.client import Follower, Subscription, UpdateKind

REDRAW_S = 0.5
COUNTDOWN_S = 5.0
EVENTS_SHOWN = 8


class DemoView:
    """Shows the list of ``follower``. `run` it until cancelled; `echo` lines meanwhile."""

    def __init__(self, follower: Follower, updates: Subscription) -> None:
        self._follower = follower
        self._updates = updates
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._console = Console(file=sys.stdout, highlight=False)
        self._live: Live | None = None

    def echo(self, line: str) -> None:
        """Print one line that stays."""
        if self._live is not None:
            self._live.console.print(Text(visible(line)))
        else:
            click.echo(visible(line))
            sys.stdout.flush()

    async def run(self) -> None:
        """Show the list until cancelled."""
        if not on_terminal():
            await self._print_lines()
        with Live(console=self._console, auto_refresh=False, screen=False) as live:
            self._live = live
            try:
                while True:
                    live.update(self._drawing(), refresh=True)
                    await self._next_lines(REDRAW_S)
            finally:
                live.update(self._drawing(), refresh=True)
                self._live = None

    async def _print_lines(self) -> None:
        loop = asyncio.get_running_loop()
        printed_s = loop.time()
        while True:
            for line in await self._next_lines(COUNTDOWN_S):
                self.echo(line)
                printed_s = loop.time()
            if loop.time() - printed_s >= COUNTDOWN_S and (left := complete_in(self._follower.sources)):
                printed_s = loop.time()
                self.echo(f"          {count_of(len(self._follower.pools))}: {left}")

    async def _next_lines(self, limit_s: float) -> list[str]:
        """The next update as lines, or none if none comes in time."""
        try:
            update = await asyncio.wait_for(anext(self._updates), limit_s)
        except TimeoutError:
            return []
        lines: list[str] = []
        if update.event is not None:
            lines = lines_of(update.event)
        elif update.kind is UpdateKind.DISCONNECTED and update.error is not None:
            lines = [f"lost      {update.error.detail}"]
        self._events.extend(lines)
        return lines

    def _drawing(self) -> Group:
        connected = self._follower.connected_url is not None
        style = "green" if self._follower.complete else "yellow" if connected else "red"
        return Group(
            Text(),
            drawn(*pool_table(self._follower.pools.values(), wide=False)),
            Text(state_line(self._follower), style=style),
            Text(),
            *(Text(visible(line), style="dim", no_wrap=True, overflow="ellipsis") for line in self._events),
            Text("Ctrl-C ends it.", style="dim"),
        )
