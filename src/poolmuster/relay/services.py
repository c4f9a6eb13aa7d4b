"""The services behind ``--discovery``: heartbeats as HTTP calls, answers as outcomes.

Registering is not left to `poolmuster.client.api.DiscoveryApi`, which does not tell a ``201`` from a ``200``: here it
is the difference between a lease that was lost and an outage that was survived.
"""

import aiohttp
import msgspec

from poolmuster.client.api import DiscoveryApi
from poolmuster.client.errors import BadAnswer, NotReady, Unreachable, error_of
from poolmuster.client.errors import Refused as OddAnswer
from poolmuster.client.settings import ClientSettings
from poolmuster.client.transport import call_timeout, proxy_of
from poolmuster.model.errors import InvalidInput, LimitReached, PoolmusterError, RelayLeft, RequestTimeout, Unavailable
from poolmuster.model.key import PoolKey
from poolmuster.model.wire import Registered
from poolmuster.relay.facts import with_relay_id
from poolmuster.relay.heartbeat import (
    Deregister,
    Failed,
    Left,
    Outcome,
    Refused,
    Register,
    Renewed,
    Superseded,
    terms_of,
)

ANSWER_LIMIT_BYTES = 1024 * 1024
HTTP_CREATED = 201
HTTP_SERVER_ERROR = 500


class Services:
    """`poolmuster.relay.discovery.Discovery` over ``session``, which is the caller's."""

    def __init__(self, session: aiohttp.ClientSession, settings: ClientSettings) -> None:
        self._session = session
        self._settings = settings
        self._apis = [DiscoveryApi(url, session, settings) for url in settings.urls]
        self._proxies = [proxy_of(url) for url in settings.urls]

    async def register(self, step: Register) -> Outcome:
        """Send one heartbeat, within the step's time."""
        try:
            return await self._post(step)
        except PoolmusterError as error:
            return outcome_of(error)
        except TimeoutError:
            return Failed(f"{self._apis[step.url].url} does not answer in time")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Failed(f"{self._apis[step.url].url} cannot be reached: {_reason(error)}")

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
        return Left()

    async def _post(self, step: Register) -> Outcome:
        api = self._apis[step.url]
        async with self._session.post(
            api.url + "/pools",
            data=with_relay_id(step.facts, step.relay_id),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            allow_redirects=False,
            timeout=call_timeout(self._settings, step.timeout_ms / 1000),
            proxy=self._proxies[step.url],
        ) as response:
            body = await _read(response)
            if 300 <= response.status < 400:
                return Refused(response.status, f"{api.url} answers with a redirect, and redirects are not followed")
            if not 200 <= response.status < 300:
                raise error_of(api.url, response.status, response.headers, body)
            try:
                taken = msgspec.json.decode(body, type=Registered)
            except (msgspec.DecodeError, RecursionError) as error:
                raise BadAnswer(f"what answers at {api.url} is not the discovery service ({error})") from error
        terms = terms_of(taken.lease.duration_ms, taken.lease.heartbeat_interval_ms)
        return Renewed(terms, created=response.status == HTTP_CREATED, conflict=taken.conflict)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while piece := await response.content.readany():
        body += piece
        if len(body) > ANSWER_LIMIT_BYTES:
            raise BadAnswer(f"{response.url} answers more than {ANSWER_LIMIT_BYTES} bytes")
    return bytes(body)


def outcome_of(error: PoolmusterError) -> Outcome:
    """What an error of a call means for the heartbeat."""
    match error:
        case RelayLeft():
            return Superseded(error.detail)
        case Unreachable() | RequestTimeout():
            return Failed(error.detail)
        case NotReady() | LimitReached() | Unavailable():
            return Failed(error.detail, error.retry_after_s * 1000)
        case OddAnswer(http_status=status) if status < HTTP_SERVER_ERROR:
            return Refused(status, error.detail)
    if isinstance(error, BadAnswer) or error.status >= HTTP_SERVER_ERROR:
        return Failed(error.detail)
    faults = error.faults if isinstance(error, InvalidInput) else ()
    return Refused(error.status, error.detail + "".join(f" {fault.pointer}: {fault.detail}." for fault in faults))


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    return str(error) or type(error).__name__
