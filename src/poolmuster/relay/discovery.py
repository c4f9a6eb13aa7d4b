"""The discovery service behind ``--discovery``: registrations as documents, heartbeats as calls, errors as outcomes."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from poolmuster.client.api import DiscoveryApi
from poolmuster.client.errors import HTTP_SERVER_ERROR, InvalidResponse, UnexpectedStatus, Unreachable
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
from poolmuster.model.strict_json import canonical
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
from poolmuster.relay.probe import ServedModel
from poolmuster.relay.settings import PoolSettings

ANSWER_LIMIT_BYTES = 1024 * 1024


class Discovery(Protocol):
    """The instances, by number. Calls raise nothing for a failure of an instance."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the relay's credential files now; their last good content is in use."""
        ...

    async def register(self, step: Register) -> Outcome:
        """Send one heartbeat, within the step's time."""
        ...

    async def deregister(self, key: PoolKey, step: Deregister) -> Outcome:
        """Take one pool off the list, within the step's time."""
        ...


class DiscoveryClient:
    """`Discovery` over ``session``, which the caller closes."""

    def __init__(self, session: Session, settings: ClientSettings) -> None:
        settings = msgspec.structs.replace(settings, answer_limit_bytes=ANSWER_LIMIT_BYTES)
        self._credentials = session.credentials
        self._apis = [DiscoveryApi(url, session, settings) for url in settings.urls]

    @property
    def problems(self) -> tuple[str, ...]:
        return self._credentials.problems

    async def register(self, step: Register) -> Outcome:
        body = with_relay_id(step.facts, step.relay_id)
        try:
            result = await self._apis[step.url].register(body, timeout_s=step.timeout_ms / 1000)
        except PoolmusterError as error:
            return outcome_of(error)
        terms = terms_of(result.lease.duration_ms, result.lease.heartbeat_interval_ms)
        return HeartbeatAccepted(terms, created=result.created, conflict=result.conflict)

    async def deregister(self, key: PoolKey, step: Deregister) -> Outcome:
        try:
            await self._apis[step.url].deregister(
                key,
                relay_id=step.relay_id,
                reason=step.request.reason.value,
                detail=step.request.detail,
                timeout_s=step.timeout_ms / 1000,
            )
        except PoolmusterError as error:
            return outcome_of(error)
        return HeartbeatGone()


def outcome_of(error: PoolmusterError) -> Outcome:
    """The outcome of a heartbeat whose call raised ``error``."""
    match error:
        case RelayDeregistered():
            return Superseded(error.detail)
        case Unreachable() | RequestTimeout():
            return HeartbeatFailed(error.detail)
        case LimitReached() | Unavailable():
            return HeartbeatFailed(error.detail, error.retry_after_s * 1000)
        case UnexpectedStatus(http_status=status) if status < HTTP_SERVER_ERROR:
            return HeartbeatRefused(status, error.detail)
    if isinstance(error, InvalidResponse) or error.status >= HTTP_SERVER_ERROR:
        return HeartbeatFailed(error.detail)
    if isinstance(error, Unauthenticated | Forbidden):
        hint = "The credentials sent there are those in --token-file or --client-cert."
        return HeartbeatRefused(error.status, f"{error.detail} {hint}")
    return HeartbeatRefused(error.status, error.line if isinstance(error, InvalidInput) else error.detail)


def document_of(settings: PoolSettings, file_labels: Mapping[str, str], models: tuple[ServedModel, ...]) -> bytes:
    """The registration without its ``relay_id``, in a form that is equal for equal facts."""
    key = settings.key
    location = {"region": settings.region, "availability_zone": settings.availability_zone}
    document: dict[str, Any] = {
        "cluster_id": key.cluster_id,
        "namespace": key.namespace,
        "dgd_name": key.dgd_name,
        "frontend_url": settings.advertise_url,
        "models": _models(settings, models),
        "location": _given(location) or None,
        "weight": settings.weight,
        "labels": {**file_labels, **dict(settings.labels)} or None,
    }
    return canonical(_given(document))


def _models(settings: PoolSettings, models: tuple[ServedModel, ...]) -> list[dict[str, Any]]:
    aliases: dict[str, set[str]] = defaultdict(set)
    for model_id, alias in settings.aliases:
        aliases[model_id].add(alias)
    return [
        _given({"id": each.id, "aliases": sorted(aliases[each.id]) or None, "context_window": each.context_window})
        for each in sorted(models, key=lambda model: model.id)
    ]


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def with_relay_id(facts: bytes, relay_id: str) -> bytes:
    """The body of a heartbeat: ``facts`` and the id of the relay."""
    return facts[:-1] + b',"relay_id":' + canonical(relay_id) + b"}"
