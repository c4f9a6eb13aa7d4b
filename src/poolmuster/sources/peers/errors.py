"""What can be the matter with a peer, or with the name of all of them."""

from poolmuster.model.source import SourceReason


class PeerTrouble(Exception):
    """A peer was not read: its reason, and one line for people, without secrets."""

    def __init__(self, reason: SourceReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class PeerRefused(Exception):
    """Nobody listens at the address: the machine is there and says so."""


class NameTrouble(Exception):
    """A name could not be resolved. That it has no addresses is no trouble."""


def bad_answer(detail: str) -> PeerTrouble:
    """It said something that no instance says."""
    return PeerTrouble(SourceReason.BAD_ANSWER, detail)
