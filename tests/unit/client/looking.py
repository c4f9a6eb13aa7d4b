"""Looks at files of credentials, on a clock that the test moves."""

import asyncio

from poolmuster.client.credentials import LOOK_INTERVAL_MS, SETTLE_MS, ClientCredentials
from tests.support.clock import ManualClock


async def look(credentials: ClientCredentials, clock: ManualClock) -> None:
    """Look now, and let what changed settle."""
    looking = asyncio.create_task(credentials.look())
    await clock.advance(SETTLE_MS)
    await looking


async def looked(credentials: ClientCredentials, clock: ManualClock) -> None:
    """Look when it is due."""
    clock.jump(LOOK_INTERVAL_MS)
    assert credentials.is_due
    await look(credentials, clock)
