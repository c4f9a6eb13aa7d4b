"""The live list: redrawn on a terminal, a line for each change in a pipe, an object a line as JSON."""

import asyncio
import contextlib
import json
import sys

import click
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from poolmuster.cli.exit_codes import describe, echo_err
from poolmuster.cli.service_options import why_estimated
from poolmuster.cli.tables import drawn, key_of_pool, on_terminal, pool_table, show_json
from poolmuster.cli.text import duration, instant, key_text, visible
from poolmuster.client import (
    AsyncClient,
    ClientSettings,
    Document,
    Follower,
    NotReady,
    Subscription,
    Update,
    UpdateKind,
)
from poolmuster.client.api import Filters
from poolmuster.client.events import CompletenessChanged, Event, Removed, Upserted, WatchSnapshot
from poolmuster.client.responses import model_names
from poolmuster.platform.lease_clock import SystemClock

REDRAW_S = 1.0
"""The interval between redraws, for ages and remaining times."""

BURST_S = 0.1
"""Changes that come this close together are drawn as one."""


async def watch(settings: ClientSettings, chosen: Filters, output: str) -> None:
    """Show the list and its changes until interrupted. Raises when no instance could ever be reached."""
    async with AsyncClient(settings) as client, client.follow(**chosen) as follower:
        updates = follower.updates()
        await first_contact(updates, len(settings.urls))
        if output == "json":
            await objects(follower, updates)
        elif on_terminal():
            await _redraw(follower, updates, wide=output == "wide")
        else:
            await _lines(updates)


async def first_contact(updates: Subscription, urls: int) -> None:
    """Wait for a first list; an instance that is only not ready yet is waited for."""
    failures = 0
    async for update in updates:
        if update.kind is UpdateKind.CONNECTED:
            return
        if update.kind is UpdateKind.OVERRUN:
            updates.put(update)  # the code that shows the list needs it too
            return
        if update.kind is UpdateKind.DISCONNECTED and update.error is not None:
            failures += 1
            if not isinstance(update.error, NotReady) and failures >= urls:
                raise update.error
            echo_err(f"poolmuster: {describe(update.error)}")


async def objects(follower: Follower, updates: Subscription) -> None:
    """Print the objects of the watch; in place of those that were left out, a snapshot of the follower."""
    async for update in updates:
        _report_connection(update)
        if update.kind is UpdateKind.OVERRUN and follower.has_list:
            show_json(_snapshot_of(follower))
        if update.event is not None:
            show_json(json.dumps(update.event.document, ensure_ascii=False, separators=(",", ":")).encode())


def _snapshot_of(follower: Follower) -> bytes:
    rest = {
        "complete": follower.complete,
        "sources": msgspec.to_builtins(follower.sources),
        "revision": follower.revision,
    }
    tail = json.dumps(rest, separators=(",", ":")).encode()[1:]
    return b'{"type":"snapshot","pools":' + follower.pools_json + b"," + tail


async def _lines(updates: Subscription) -> None:
    clock = SystemClock()
    async for update in updates:
        _report_connection(update)
        for line in lines_of(update.event) if update.event is not None else ():
            click.echo(f"{instant(clock.wall_ms())}  {line}")


def _report_connection(update: Update) -> None:
    if update.kind is UpdateKind.DISCONNECTED and update.error is not None:
        echo_err(f"poolmuster: {describe(update.error)} Trying again; until then the list is as it was.")
    elif update.kind is UpdateKind.OVERRUN:
        echo_err("poolmuster: changes came faster than they could be printed; some are left out.")


def lines_of(event: Event) -> list[str]:
    """An event of the watch as lines for people."""
    match event:
        case WatchSnapshot():
            head = f"snapshot  {count_of(len(event.pools))}, {_completeness(event)}"
            return [head, *(_pool_line("listed", pool) for pool in event.pools.values())]
        case Upserted():
            return [_pool_line(event.type, event.pool)]
        case Removed():
            why = ": ".join(part for part in (event.cause, event.reason) if part)
            return [visible(f"removed   {key_text(event.key)}  {why}")]
        case CompletenessChanged():
            return [visible(f"list      {_completeness(event)}")]
        case _:
            return []


def _completeness(event: WatchSnapshot | CompletenessChanged) -> str:
    return "complete" if event.complete else f"estimated: {visible(why_estimated(event.sources))}"


def _pool_line(what: str, pool: Document) -> str:
    return visible(f"{what:<9} {key_of_pool(pool)}  {', '.join(model_names(pool))}".rstrip())


async def _redraw(follower: Follower, updates: Subscription, *, wide: bool) -> None:
    with Live(console=Console(file=sys.stdout), auto_refresh=False, screen=False) as live:
        while True:
            # The state stands first: of a list longer than the terminal the end is cut off.
            table = drawn(*pool_table(follower.pools.values(), wide=wide))
            live.update(Group(Text(state_line(follower), style="dim"), table), refresh=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REDRAW_S):
                    await anext(updates)
                    await asyncio.sleep(BURST_S)
                    updates.take_all()


def state_line(follower: Follower) -> str:
    """The line above the table: how many, how complete, how old."""
    if not follower.has_list:
        state = "the first list has not arrived yet"
    elif follower.complete:
        state = "complete"
    elif follower.connected_url is not None:
        state = f"estimated: {why_estimated(follower.sources)}"
    else:
        why = follower.last_error.detail if follower.last_error is not None else "reconnecting"
        state = f"as of {duration(follower.age_ms or 0)} ago: {why}"
    return visible(f"{count_of(len(follower.pools))}, {state}")


def count_of(pools: int) -> str:
    """How many, in words."""
    return f"{pools} pool{'' if pools == 1 else 's'}"
