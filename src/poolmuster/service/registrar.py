"""The registrar: takes registrations and deregistrations, within this instance's limits.

The bytes of a heartbeat that were accepted before are not parsed again: a cache maps a digest of them to the
registration. Parsing costs more than all the rest of a heartbeat. The cache holds accepted registrations only, and of
each pool the latest.
"""

from collections import OrderedDict
from hashlib import blake2b

import msgspec

from poolmuster.model.auth import Principal
from poolmuster.model.change import PoolDeregistration
from poolmuster.model.errors import Forbidden, LimitReached, PoolmusterError
from poolmuster.model.key import PoolKey
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.registration import Pool, Registration, parse_registration
from poolmuster.model.schema import LeaseTerms, RegistrationResponse
from poolmuster.ports.clock import Clock
from poolmuster.ports.store import RegistrationStore
from poolmuster.service.catalog import Catalog


class RegistrarLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what this instance takes in. Renewals are never refused for them."""

    pools: int
    pools_per_cluster: int
    registrations_bytes: int


class RegistrationResult(msgspec.Struct, frozen=True, gc=False):
    """What was taken in: the answer, whose it is, and whether the pool was not listed here before."""

    answer: RegistrationResponse
    key: PoolKey
    created: bool


class Registrar:
    """Takes registrations; hands out leases."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: RegistrationStore,
        catalog: Catalog,
        limits: RegistrarLimits,
        policy: LeasePolicy,
    ) -> None:
        self._clock = clock
        self._store = store
        self._catalog = catalog
        self._limits = limits
        self._policy = policy
        self._parse_cache: dict[bytes, Registration] = {}
        self._digests: OrderedDict[PoolKey, bytes] = OrderedDict()
        self._parse_cache_bytes = 0
        self._pending: dict[PoolKey, tuple[int, int]] = {}
        """Stored and not listed yet, as a store that is read from time to time lags: size, and until when."""

    async def register_body(self, body: bytes, principal: Principal) -> RegistrationResult:
        """Like `register`, of what ``principal`` sent. Raises `InvalidInput` too."""
        digest = blake2b(body, digest_size=24).digest()
        known = self._parse_cache.get(digest)
        registration = parse_registration(body) if known is None else known
        answer, created = await self.register(registration, principal)
        if known is None:
            self._remember(digest, registration)
        return RegistrationResult(answer, registration.pool.key, created)

    def _remember(self, digest: bytes, registration: Registration) -> None:
        """Bounded as the list is, as pools that have left are remembered for a while."""
        self._forget(registration.key)
        self._parse_cache[digest] = registration
        self._digests[registration.key] = digest
        self._parse_cache_bytes += registration.pool.size_bytes
        while len(self._parse_cache) > self._limits.pools or self._parse_cache_bytes > self._limits.registrations_bytes:
            self._forget(next(iter(self._digests)))

    def _forget(self, key: PoolKey) -> None:
        digest = self._digests.pop(key, None)
        if digest is not None:
            self._parse_cache_bytes -= self._parse_cache.pop(digest).pool.size_bytes

    async def register(self, registration: Registration, principal: Principal) -> tuple[RegistrationResponse, bool]:
        """Store or renew what ``principal`` says. Returns the answer and whether the pool was not listed here before.

        Raises `Forbidden`, `LimitReached`, `RelayDeregistered` with nothing changed, and `Unavailable`, after which
        the write may have taken effect.
        """
        key, catalog, duration_ms = registration.pool.key, self._catalog, self._policy.duration_ms
        _authorize(principal, key)
        lease = catalog.leases.get(key)
        if lease is None or lease.record is not registration.pool:
            self._check_limits(registration, None if lease is None else lease.record, principal)
        if lease is None:
            self._pending[key] = (registration.pool.size_bytes, self._clock.monotonic_ms() + duration_ms)
        try:
            await self._store.put(registration)
        except PoolmusterError:
            self._pending.pop(key, None)
            raise
        if lease is None and catalog.is_live(key):
            self._pending.pop(key, None)
        response = RegistrationResponse(
            lease=LeaseTerms(
                duration_ms=duration_ms,
                heartbeat_interval_ms=self._policy.heartbeat_ms,
                ends_at_ms=self._clock.wall_ms() + duration_ms,
            ),
            routers=catalog.routers,
            conflict=catalog.has_conflict(key),
        )
        return response, lease is None

    def _check_limits(self, new: Registration, old: Pool | None, principal: Principal) -> None:
        """Raise `LimitReached` where ``new`` would go beyond a bound. Live registrations count, listed or not."""
        limits, leases, cluster_id = self._limits, self._catalog.leases, new.key.cluster_id
        self._prune_pending()
        growth = new.pool.size_bytes - (old.size_bytes if old else 0)
        pending_bytes = sum(size_bytes for key, (size_bytes, _) in self._pending.items() if key != new.key)
        if growth > 0 and leases.size_bytes + pending_bytes + growth > limits.registrations_bytes:
            raise LimitReached(f"This instance holds at most {limits.registrations_bytes} bytes of registrations.")
        if old is not None or new.key in self._pending:
            return
        if len(leases) + len(self._pending) >= limits.pools:
            raise LimitReached(f"This instance holds at most {limits.pools} pools.")
        pending_in_cluster = sum(key.cluster_id == cluster_id for key in self._pending)
        in_cluster = leases.group_counts.get(cluster_id, 0) + pending_in_cluster
        if in_cluster >= limits.pools_per_cluster:
            raise LimitReached(f"This instance holds at most {limits.pools_per_cluster} pools of one cluster.")
        if principal.pools_per_cluster is not None and in_cluster >= principal.pools_per_cluster:
            raise LimitReached(f"This credential may register into clusters of {principal.pools_per_cluster} pools.")

    def _prune_pending(self) -> None:
        """Drop pending registrations that are live by now, or have had a lease to become live."""
        if self._pending:
            now_ms = self._clock.monotonic_ms()
            self._pending = {
                key: pending
                for key, pending in self._pending.items()
                if pending[1] > now_ms and not self._catalog.is_live(key)
            }

    async def deregister(self, deregistration: PoolDeregistration, principal: Principal) -> None:
        """Deregister a pool at once. Raises `Forbidden`, `Unavailable`."""
        _authorize(principal, deregistration.key)
        await self._store.deregister(deregistration)
        if not self._catalog.is_live(deregistration.key):
            self._forget(deregistration.key)


def _authorize(principal: Principal, key: PoolKey) -> None:
    """By the key itself, however it was spelled in the request."""
    if not principal.can_register(key.cluster_id):
        raise Forbidden(f"This credential may not speak for the cluster {key.cluster_id!r}.")
