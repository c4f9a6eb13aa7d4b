"""Waiting for a service to be at its usual work."""

import asyncio

import msgspec

from bench.load import closed_loop
from bench.programs import Program, fetch


async def until_warm(program: Program, heartbeats: list[bytes]) -> None:
    """Renew every lease until the service calls its list complete."""
    while True:
        await closed_loop(program, heartbeats, count=len(heartbeats), clients=16)
        if msgspec.json.decode(await asyncio.to_thread(fetch, program.url + "/status"))["complete"]:
            return
        await asyncio.sleep(1)
