"""Reads files of credentials again, on a clock that the test moves."""

import asyncio

from poolmuster.client.credentials import REFRESH_INTERVAL_MS, SETTLE_MS, ClientCredentials
from tests.support.clock import ManualClock


async def refresh(credentials: ClientCredentials, clock: ManualClock) -> None:
    """Refresh now, and let what changed settle."""
    refreshing = asyncio.create_task(credentials.refresh())
    await clock.advance(SETTLE_MS)
    await refreshing


async def refresh_when_due(credentials: ClientCredentials, clock: ManualClock) -> None:
    """Refresh when it is due."""
    clock.jump(REFRESH_INTERVAL_MS)
    assert credentials.is_due
    await refresh(credentials, clock)
