"""The audit of refusals: each is counted, and told in a log that a flood cannot fill."""

import asyncio
from collections import Counter

import structlog
from starlette.types import Scope

from poolmuster.http.log_throttle import LogThrottle
from poolmuster.model.auth import AuthenticationError, AuthFailure
from poolmuster.model.errors import PoolmusterError
from poolmuster.ports.clock import Clock

FLUSH_EVERY_S = 1.0
PATH_SHOWN = 200

log = structlog.get_logger(__name__)


class AuthFailureLog:
    """What was answered with ``401`` or ``403``, by reason."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[AuthFailure] = Counter(dict.fromkeys(AuthFailure, 0))
        self._clock = clock
        self._throttle: LogThrottle[tuple[AuthFailure, str, str]] = LogThrottle()

    def record(self, scope: Scope, error: PoolmusterError) -> None:
        """A request was refused: its credentials (`AuthenticationError` is the cause of ``error``) or its right."""
        cause = error.__cause__
        if isinstance(cause, AuthenticationError):
            reason, why = cause.reason, cause.text
        else:
            reason, why = AuthFailure.FORBIDDEN, error.detail
        self.counts[reason] += 1
        client, context = client_of(scope), scope.get("auth")
        principal = context.principal.name if context is not None else None
        # Who is known and wants what he may not is told of each thing that he wants: there are not so many of either.
        what = f"{principal} {why}" if reason is AuthFailure.FORBIDDEN else ""
        left_out = self._throttle.tell((reason, client, what), self._clock.monotonic_ms())
        if left_out is None:
            return
        log.warning(
            "A request was refused",
            reason=reason.value,
            why=why,
            client=client,
            principal=principal,
            method=scope["method"],
            path=_shown(scope["raw_path"]),
            left_out=left_out,
        )

    async def run(self) -> None:
        """Tell how many lines were left out of what has stopped by now. Until cancelled."""
        while True:
            await self._clock.sleep_ms(FLUSH_EVERY_S * 1000)
            for key, count in self._throttle.left_out(self._clock.monotonic_ms()):
                reason, client = (key[0].value, key[1]) if key is not None else ("any", "others")
                log.warning("More requests were refused", reason=reason, client=client, left_out=count)
                await asyncio.sleep(0)


def client_of(scope: Scope) -> str:
    """The address that a request came from, IPv4 as such also where one socket takes both."""
    client = scope.get("client")
    return shown_address(client[0]) if client else "unknown"


def shown_address(host: str) -> str:
    """An address as people know it, where one socket takes both families."""
    return host.removeprefix("::ffff:")


def _shown(raw_path: bytes) -> str:
    """Without its query, which never says what is wanted, and could hold anything."""
    text = raw_path.decode("ascii", "replace")
    return text if len(text) <= PATH_SHOWN else text[:PATH_SHOWN] + "..."
