"""The audit of refusals: each is counted, and told in a log that a flood cannot fill."""

import asyncio
from collections import Counter

import structlog
from starlette.types import Scope

from poolmuster.httpd.hosts import shown_address
from poolmuster.httpd.throttled import Throttle
from poolmuster.model.access import NotProved, RefusalReason
from poolmuster.model.errors import PoolmusterError
from poolmuster.ports.clock import Clock

FLUSH_EVERY_S = 1.0
PATH_SHOWN = 200

log = structlog.get_logger(__name__)


class Refusals:
    """What was answered with ``401`` or ``403``, by reason."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[RefusalReason] = Counter(dict.fromkeys(RefusalReason, 0))
        self._clock = clock
        self._throttle: Throttle[tuple[RefusalReason, str]] = Throttle()

    def tell(self, scope: Scope, error: PoolmusterError) -> None:
        """A request was refused: its credentials (``error`` is caused by a `NotProved`), or what it wanted to do."""
        cause = error.__cause__
        reason, why = (cause.reason, cause.text) if isinstance(cause, NotProved) else _forbidden(error)
        self.counts[reason] += 1
        client = client_of(scope)
        left_out = self._throttle.tell((reason, client), self._clock.monotonic_ms())
        if left_out is None:
            return
        admission = scope.get("admission")
        log.warning(
            "A request was refused",
            reason=reason.value,
            why=why,
            client=client,
            principal=admission.principal.name if admission is not None else None,
            method=scope["method"],
            path=_shown(scope["raw_path"]),
            left_out=left_out,
        )

    async def run(self) -> None:
        """Tell how many lines were left out of what has stopped by now. Until cancelled."""
        while True:
            await self._clock.sleep_ms(FLUSH_EVERY_S * 1000)
            for key, count in self._throttle.left_out(self._clock.monotonic_ms()):
                reason, client = key if key is not None else (None, None)
                log.warning(
                    "Requests were refused", reason=reason.value if reason else "any", client=client, left_out=count
                )
                await asyncio.sleep(0)


def client_of(scope: Scope) -> str:
    """The address that a request came from, as `shown_address`."""
    return shown_address(scope.get("client"))


def _forbidden(error: PoolmusterError) -> tuple[RefusalReason, str]:
    return RefusalReason.FORBIDDEN, error.detail


def _shown(raw_path: bytes) -> str:
    """Without its query, which never says what is wanted, and could hold anything."""
    text = raw_path.decode("ascii", "replace")
    return text if len(text) <= PATH_SHOWN else text[:PATH_SHOWN] + "..."
