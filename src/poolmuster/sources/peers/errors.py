"""Failures of a read of a peer, and of a resolution of the peers' name."""

from poolmuster.model.source import SourceReason


class PeerReadError(Exception):
    """A peer was not read. ``detail`` is one line for people, without secrets."""

    def __init__(self, reason: SourceReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class PeerRefused(Exception):
    """The machine at the address refused the connection: nothing listens there."""


class ResolverError(Exception):
    """A name was not resolved. A name without addresses is no error."""


def bad_answer(detail: str) -> PeerReadError:
    """A response that no instance gives."""
    return PeerReadError(SourceReason.BAD_ANSWER, detail)
