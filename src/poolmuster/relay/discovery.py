"""Discovery, as one pool's agent sees it."""

from typing import Protocol

from poolmuster.model.key import PoolKey
from poolmuster.relay.heartbeat import Deregister, Outcome, Register


class Discovery(Protocol):
    """The services behind ``--discovery``, by number. Calls never raise for what a service does or fails to do."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong now with the files by which the relay shows who it is; what they last held is in use."""
        ...

    async def register(self, step: Register) -> Outcome:
        """Send one heartbeat, within the step's time."""
        ...

    async def deregister(self, key: PoolKey, step: Deregister) -> Outcome:
        """Take one pool off the list, within the step's time."""
        ...
