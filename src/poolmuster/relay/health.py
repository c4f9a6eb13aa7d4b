"""Whether a model server is up, judged by its last probes."""

import msgspec

from poolmuster.model.change import DeregistrationReason


class ServedModel(msgspec.Struct, frozen=True):
    """A model that the server lists and can serve now. ``context_window`` is in tokens."""

    id: str
    context_window: int | None = None


class Healthy(msgspec.Struct, frozen=True):
    """A good probe: at least one model, sorted by id, each once. ``left_out`` entries of the list were not read."""

    models: tuple[ServedModel, ...]
    left_out: int = 0


class Unhealthy(msgspec.Struct, frozen=True):
    """A failed probe, and why nobody should be sent to this server now."""

    reason: DeregistrationReason
    detail: str


Finding = Healthy | Unhealthy


class HealthState:
    """Up with the first good probe, down with ``unhealthy_after`` failed ones in a row; till then the last models hold.

    ``current`` is ``None`` before the first probe has ended, unless it begins as ``presumed``: up till it is found out.
    """

    def __init__(self, unhealthy_after: int, presumed: Healthy | None = None) -> None:
        self._unhealthy_after = unhealthy_after
        self.failures = 0
        self.latest: Finding | None = None
        self.current: Finding | None = presumed

    def record(self, finding: Finding) -> None:
        """Take in how a probe ended."""
        self.latest = finding
        if isinstance(finding, Healthy):
            self.failures = 0
            self.current = finding
            return
        self.failures += 1
        if not isinstance(self.current, Healthy) or self.failures >= self._unhealthy_after:
            self.current = finding
