"""A resumed watch begins with the completeness of *now* and then tells what was missed.

Until that is done the mirror is behind, so the completeness is held back: a list that still lacks what was missed must
not count as complete, and what it lacks must not be forgotten.
"""

import msgspec

from poolmuster.client.events import CompletenessChanged, Event, Snapshot


def number_of(revision: str | None, boot: str | None = None) -> int | None:
    """The ``N`` of ``BOOT.N``, or ``None`` where it is not of that form or of another boot."""
    found, _, number = (revision or "").rpartition(".")
    if not found or not number.isascii() or not number.isdecimal() or (boot is not None and found != boot):
        return None
    return int(number)


def boot_of(revision: str | None) -> str:
    """The ``BOOT`` of ``BOOT.N``."""
    return (revision or "").rpartition(".")[0]


class CatchUp:
    """Gate for the events of one connection; ``latest`` is the revision that its answer bore, if any.

    ``resumed`` is whether a place to resume from was sent: if not, only a snapshot can make the mirror right, and
    what comes before one is dropped.
    """

    def __init__(self, latest: str | None, *, resumed: bool) -> None:
        self._latest = latest
        self._held: CompletenessChanged | None = None
        self._begun = False
        self._resumed = resumed
        self.done = False
        """Whether the mirror is as new as the service was when this connection began."""

    def admit(self, event: Event) -> list[Event]:
        """What to take in now, in order."""
        if self.done:
            return [event]
        if isinstance(event, Snapshot):
            self.done = True
            return [event]
        if not self._begun:
            if not isinstance(event, CompletenessChanged) or not self._resumed:
                return []
            self._begun = True
        if isinstance(event, CompletenessChanged):
            self._held = event
            admitted: list[Event] = []
        else:
            admitted = [event]
        if self._is_behind(event):
            return admitted
        self.done = True
        assert self._held is not None, "a resumed stream begins with one"
        place = {"id": event.id or self._held.id, "revision": event.revision or self._held.revision}
        return [*admitted, msgspec.structs.replace(self._held, **place)]

    def _is_behind(self, event: Event) -> bool:
        # Through a filter the last number may never be seen; then the next ping, which bears the latest, tells.
        target = max(
            (
                number
                for revision in (self._latest, self._held.revision if self._held else None)
                if (number := number_of(revision, boot_of(event.revision))) is not None
            ),
            default=None,
        )
        place = number_of(event.id.rpartition(".")[0] if event.id else event.revision)
        return target is not None and place is not None and place < target
