"""The registrar: takes registrations and departures in, within this instance's limits.

A heartbeat whose bytes were seen before is not parsed again: the registration they stand for is remembered by a
digest of them. Parsing costs more than all the rest of a heartbeat.
"""

from collections import OrderedDict
from hashlib import blake2b

import msgspec

from poolmuster.model.change import Departure
from poolmuster.model.errors import LimitReached
from poolmuster.model.registration import Registration, parse_registration
from poolmuster.model.wire import LeaseTerms, Registered, RouterReplica
from poolmuster.ports.clock import Clock
from poolmuster.ports.store import RegistrationStore
from poolmuster.service.projection import Projection


class RegistrarLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what this instance takes in. Renewals are never refused for them."""

    pools: int
    pools_per_cluster: int
    registrations_bytes: int


class Registrar:
    """Takes registrations; hands out leases."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: RegistrationStore,
        projection: Projection,
        limits: RegistrarLimits,
        lease_ms: int,
        heartbeat_interval_ms: int,
        routers: tuple[RouterReplica, ...] = (),
    ) -> None:
        self._clock = clock
        self._store = store
        self._projection = projection
        self._limits = limits
        self._lease_ms = lease_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._routers = routers
        self._parsed: OrderedDict[bytes, Registration] = OrderedDict()
        self._parsed_bytes = 0

    def parse(self, body: bytes) -> Registration:
        """The registration that ``body`` holds. Raises `InvalidInput`."""
        digest = blake2b(body, digest_size=24).digest()
        registration = self._parsed.get(digest)
        if registration is None:
            registration = parse_registration(body)
            self._remember(digest, registration)
        return registration

    def _remember(self, digest: bytes, registration: Registration) -> None:
        """Bounded as the list is: bodies that were never listed are remembered too."""
        self._parsed[digest] = registration
        self._parsed_bytes += len(registration.pool.body)
        while len(self._parsed) > self._limits.pools or self._parsed_bytes > self._limits.registrations_bytes:
            _, oldest = self._parsed.popitem(last=False)
            self._parsed_bytes -= len(oldest.pool.body)

    async def register(self, registration: Registration) -> tuple[Registered, bool]:
        """Store or renew. Returns the answer and whether the pool was not listed here before.

        Raises `LimitReached`, `RelayLeft`, `Unavailable`; nothing is changed then (after `Unavailable`: perhaps).
        """
        key = registration.pool.key
        listed = self._projection.roster.get(key)
        if listed is None or listed.registration.pool is not registration.pool:
            self._check_limits(registration, None if listed is None else listed.registration)
        await self._store.put(registration)
        return (
            Registered(
                lease=LeaseTerms(
                    duration_ms=self._lease_ms,
                    heartbeat_interval_ms=self._heartbeat_interval_ms,
                    ends_at_ms=self._clock.wall_ms() + self._lease_ms,
                ),
                routers=self._routers,
                conflict=self._projection.roster.conflict(key, self._clock.monotonic_ms()) is not None,
            ),
            listed is None,
        )

    def _check_limits(self, new: Registration, old: Registration | None) -> None:
        limits, listing = self._limits, self._projection.listing
        growth = len(new.pool.body) - (len(old.pool.body) if old else 0)
        if growth > 0 and listing.body_bytes + growth > limits.registrations_bytes:
            raise LimitReached(f"This instance holds at most {limits.registrations_bytes} bytes of registrations.")
        if old is not None:
            return
        if len(listing) >= limits.pools:
            raise LimitReached(f"This instance lists at most {limits.pools} pools.")
        if self._projection.cluster_pools(new.key.cluster_id) >= limits.pools_per_cluster:
            raise LimitReached(f"This instance lists at most {limits.pools_per_cluster} pools of one cluster.")

    async def deregister(self, departure: Departure) -> None:
        """Let a pool leave at once. Raises `Unavailable`."""
        await self._store.leave(departure)
