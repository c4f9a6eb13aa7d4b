"""What an instance shares with its peers, as a port: lines of JSON, each a message of its own.

Every line is short, whatever there is to tell, and made when it is asked for: a reader that is slow holds up itself.
"""

from collections.abc import AsyncGenerator
from typing import Protocol


class ReplicationFeed(Protocol):
    """What peers read of this instance (`poolmuster.replication.messages` says what the lines mean)."""

    def snapshot(self) -> AsyncGenerator[bytes, None]:
        """All that is listed or remembered here, whoever took it. It ends."""
        ...

    def delta(self, boot_id: str, after: int) -> AsyncGenerator[bytes, None]:
        """What was registered here after number ``after`` of the boot ``boot_id``; all, if that is another boot."""
        ...

    def follow(self, boot_id: str, after: int) -> AsyncGenerator[bytes, None]:
        """The same, and whatever happens from then on. It never ends, and is never silent for a second."""
        ...
