"""The services behind ``--discovery``: heartbeats as calls of the client, answers as outcomes."""

import msgspec

from poolmuster.client.api import DiscoveryApi
from poolmuster.client.errors import InvalidResponse, NotReady, Unreachable
from poolmuster.client.errors import UnexpectedStatus as OddAnswer
from poolmuster.client.settings import ClientSettings
from poolmuster.client.transport import Session
from poolmuster.model.errors import (
    Forbidden,
    InvalidInput,
    LimitReached,
    PoolmusterError,
    RelayDeregistered,
    RequestTimeout,
    Unauthenticated,
    Unavailable,
)
from poolmuster.model.key import PoolKey
from poolmuster.relay.document import with_relay_id
from poolmuster.relay.heartbeat import (
    Deregister,
    HeartbeatAccepted,
    HeartbeatFailed,
    HeartbeatGone,
    HeartbeatRefused,
    Outcome,
    Register,
    Superseded,
    terms_of,
)

ANSWER_LIMIT_BYTES = 1024 * 1024
HTTP_SERVER_ERROR = 500


class DiscoveryClient:
    """`poolmuster.relay.discovery.Discovery` over ``session``, which is the caller's."""

    def __init__(self, session: Session, settings: ClientSettings) -> None:
        settings = msgspec.structs.replace(settings, answer_limit_bytes=ANSWER_LIMIT_BYTES)
        self._credentials = session.credentials
        self._apis = [DiscoveryApi(url, session, settings) for url in settings.urls]

    @property
    def problems(self) -> tuple[str, ...]:
        return self._credentials.problems

    async def register(self, step: Register) -> Outcome:
        """Send one heartbeat, within the step's time."""
        registration = with_relay_id(step.facts, step.relay_id)
        try:
            taken = await self._apis[step.url].register(registration, timeout_s=step.timeout_ms / 1000)
        except PoolmusterError as error:
            return outcome_of(error)
        terms = terms_of(taken.lease.duration_ms, taken.lease.heartbeat_interval_ms)
        return HeartbeatAccepted(terms, created=taken.created, conflict=taken.conflict)

    async def deregister(self, key: PoolKey, step: Deregister) -> Outcome:
        """Take one pool off the list, within the step's time."""
        departing = step.departing
        try:
            await self._apis[step.url].deregister(
                key,
                relay_id=step.relay_id,
                reason=departing.reason.value,
                detail=departing.detail,
                timeout_s=step.timeout_ms / 1000,
            )
        except PoolmusterError as error:
            return outcome_of(error)
        return HeartbeatGone()


def outcome_of(error: PoolmusterError) -> Outcome:
    """What an error of a call means for the heartbeat."""
    match error:
        case RelayDeregistered():
            return Superseded(error.detail)
        case Unreachable() | RequestTimeout():
            return HeartbeatFailed(error.detail)
        case NotReady() | LimitReached() | Unavailable():
            return HeartbeatFailed(error.detail, error.retry_after_s * 1000)
        case OddAnswer(http_status=status) if status < HTTP_SERVER_ERROR:
            return HeartbeatRefused(status, error.detail)
    if isinstance(error, InvalidResponse) or error.status >= HTTP_SERVER_ERROR:
        return HeartbeatFailed(error.detail)
    if isinstance(error, Unauthenticated | Forbidden):
        return HeartbeatRefused(
            error.status, f"{error.detail} What is shown there is what --token-file or --client-cert holds."
        )
    return HeartbeatRefused(error.status, error.line if isinstance(error, InvalidInput) else error.detail)
