"""Settings of ``poolmuster serve``: parsed once, frozen, checked before anything listens."""

import msgspec

from poolmuster.http.limits import HttpLimits
from poolmuster.model.address import Address
from poolmuster.model.lease_policy import LeasePolicy
from poolmuster.model.schema import RouterReplica
from poolmuster.programs.settings.listen import ListenSettings, UsageError
from poolmuster.service.registrar import RegistrarLimits

__all__ = ["DynamoSettings", "ListenSettings", "PeerFlags", "ServeLimits", "ServeSettings", "UsageError"]

MAX_LEASE_S = 86_400
HTTP = HttpLimits()


class ServeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Every bound of the service; each is a flag ``--limit-...``. Sizes in bytes, times in seconds."""

    pools: int = 20_000
    pools_per_cluster: int = 2_000
    registrations_bytes: int = 256 * 1024 * 1024
    body_bytes: int = 256 * 1024
    body_secs: float = HTTP.body_s
    head_bytes: int = HTTP.head_bytes
    head_secs: float = HTTP.head_s
    idle_secs: float = HTTP.idle_s
    send_stall_secs: float = HTTP.send_stall_s
    connections: int = HTTP.connections
    streams: int = 4_000
    streams_per_credential: int = 1_000
    history_changes: int = 20_000
    history_bytes: int = 64 * 1024 * 1024

    @property
    def http(self) -> HttpLimits:
        """Those of a connection."""
        return HttpLimits(
            head_bytes=self.head_bytes,
            head_s=self.head_secs,
            body_s=self.body_secs,
            idle_s=self.idle_secs,
            send_stall_s=self.send_stall_secs,
            connections=self.connections,
        )

    @property
    def registrar(self) -> RegistrarLimits:
        """Those of what is taken in."""
        return RegistrarLimits(
            pools=self.pools, pools_per_cluster=self.pools_per_cluster, registrations_bytes=self.registrations_bytes
        )


class DynamoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the table is. Without a region the AWS environment is asked; an endpoint URL alone is enough."""

    table: str
    region: str | None = None
    endpoint_url: str | None = None


class PeerFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Where the other instances are, and what is shown to them; without ``services`` there are none.

    A service without a port (0) is at the port that is listened on.
    """

    services: tuple[Address, ...] = ()
    expect: int = 0
    token_file: str | None = None
    ca_cert: str | None = None


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``poolmuster serve`` was told."""

    listen: ListenSettings = ListenSettings()
    pool_discovery: str = "registrations"
    registration_storage: str = "memory"
    dynamodb: DynamoSettings | None = None
    peers: PeerFlags = PeerFlags()
    heartbeat_interval_s: float = 5.0
    lease_duration_s: float = 15.0
    routers: tuple[RouterReplica, ...] = ()
    shutdown_delay_s: float = 0.0
    limits: ServeLimits = ServeLimits()

    @property
    def policy(self) -> LeasePolicy:
        return LeasePolicy(round(self.lease_duration_s * 1000), round(self.heartbeat_interval_s * 1000))

    @property
    def peer_services(self) -> tuple[Address, ...]:
        """The peers' names, each with its port."""
        port = self.listen.listen.port
        return tuple(each if each.port else Address(each.host, port) for each in self.peers.services)

    def check(self) -> None:
        """Raise `UsageError` where the settings contradict each other."""
        self._check_peers()
        policy = self.policy
        if policy.heartbeat_ms <= 0:
            raise UsageError("--heartbeat-interval-secs must be above zero")
        if self.lease_duration_s > MAX_LEASE_S:
            raise UsageError(f"--lease-duration-secs is at most {MAX_LEASE_S}")
        if policy.heartbeat_ms >= policy.duration_ms:
            raise UsageError(
                f"--heartbeat-interval-secs ({self.heartbeat_interval_s:g}) must be below "
                f"--lease-duration-secs ({self.lease_duration_s:g})"
            )
        ids = [router.id for router in self.routers]
        for router_id in ids:
            if ids.count(router_id) > 1:
                raise UsageError(f"--router names {router_id!r} twice")

    def _check_peers(self) -> None:
        if self.peers.services and self.dynamodb is not None:
            raise UsageError("--peer-service is for --registration-storage memory: a table is shared as it is")
        names = [str(each) for each in self.peer_services]
        for each in self.peer_services:
            if not each.port:
                raise UsageError(f"--peer-service {each.host} needs a port, as --listen leaves it open")
            if names.count(str(each)) > 1:
                raise UsageError(f"--peer-service names {each} twice")
        if self.peers.ca_cert is not None and self.listen.tls_cert_path is None:
            raise UsageError("--peer-ca-cert needs --tls-cert-path: without it peers are spoken to in the clear")
