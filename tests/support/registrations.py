"""Registrations for tests: short to write, valid unless said otherwise."""

import json
from typing import Any

from poolmuster.model.change import Deregistration, DeregistrationReason, PoolDeregistration
from poolmuster.model.key import PoolKey
from poolmuster.model.registration import Pool, Registration, parse_registration
from poolmuster.registry.updates import Renewal

CLUSTER, NAMESPACE = "c", "n"


def key(name: str = "a", cluster: str = CLUSTER) -> PoolKey:
    """The key of the pool that `document` describes."""
    return PoolKey(cluster, NAMESPACE, name)


def document(name: str = "a", cluster: str = CLUSTER, **facts: Any) -> dict[str, Any]:
    """What a relay sends."""
    return {"cluster_id": cluster, "namespace": NAMESPACE, "dgd_name": name, **facts}


def body(name: str = "a", cluster: str = CLUSTER, **facts: Any) -> bytes:
    """What a relay sends, as bytes."""
    return json.dumps(document(name, cluster, **facts)).encode()


def registration(name: str = "a", relay_id: str | None = None, cluster: str = CLUSTER, **facts: Any) -> Registration:
    """A parsed registration."""
    return parse_registration(body(name, cluster, relay_id=relay_id, **facts))


def pool(name: str = "a", cluster: str = CLUSTER, **facts: Any) -> Pool:
    """A pool's facts."""
    return registration(name, None, cluster, **facts).pool


def deregistration(
    name: str = "a", relay_id: str | None = None, reason: DeregistrationReason | None = None
) -> PoolDeregistration:
    """A wish to leave."""
    return Deregistration(key=key(name), relay_id=relay_id, reason=reason)


def renewal(registered: Registration, lease_ms: int, remaining_ms: int) -> Renewal[Pool]:
    """A renewal of ``registered``."""
    return Renewal(registered.pool, registered.relay_id, lease_ms, remaining_ms)
