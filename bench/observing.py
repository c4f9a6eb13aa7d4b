"""Reading what `bench.server` measured."""

import asyncio
import signal

import msgspec

from bench.programs import Program
from bench.turns import Turns

POLL_S = 0.01


async def longest_turn(program: Program) -> Turns:
    """The longest turns of the event loop since the last call; nothing where the program is not observed."""
    if not program.observed:
        return Turns()
    path = program.folder / "turns"
    path.unlink(missing_ok=True)
    program.send_signal(signal.SIGUSR1)
    while not path.exists():
        await asyncio.sleep(POLL_S)
    return msgspec.json.decode(path.read_bytes(), type=Turns)
