"""Which store a service runs on."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from poolmuster.model.errors import InvalidInput
from poolmuster.ports.clock import Clock, LeaseClock
from poolmuster.ports.store import RegistrationStore
from poolmuster.programs.settings.serve import DynamoSettings, ServeSettings, UsageError
from poolmuster.sources.memory import MemoryStore
from poolmuster.sources.peers.credentials import PeerCredentials, PeerFiles
from poolmuster.sources.peers.dns import ServiceName
from poolmuster.sources.peers.instrumentation import PeerInstrumentation
from poolmuster.sources.peers.node import PeerSettings
from poolmuster.sources.peers.store import PeerStore
from poolmuster.sources.peers.transport import HttpPeerTransport
from poolmuster.sources.polled.instrumentation import TableInstrumentation
from poolmuster.sources.polled.server_clock import ServerClock
from poolmuster.sources.polled.store import PolledStore

if TYPE_CHECKING:
    from botocore.session import Session

    from poolmuster.sources.dynamodb.aws import TableLocation

INSTALL_DYNAMODB = "pip install 'poolmuster[dynamodb]'"


class StoreConfigError(Exception):
    """The store cannot be used on this machine. The text is one line that says what to do."""


def build_store(
    settings: ServeSettings,
    clock: Clock,
    lease_clock: LeaseClock,
    boot_id: str,
    notes: TableInstrumentation | None = None,
    peer_notes: PeerInstrumentation | None = None,
) -> RegistrationStore:
    """The store that ``settings`` name, not yet running. Raises `StoreConfigError`, `UsageError`.

    ``notes`` are told what a table store does, ``peer_notes`` what one with peers does.
    """
    if settings.peers.services:
        return _peer_store(settings, clock, lease_clock, boot_id, peer_notes or PeerInstrumentation())
    if settings.dynamodb is None:
        return MemoryStore(clock, lease_clock, settings.policy)
    return _dynamo_store(settings.dynamodb, settings, clock, boot_id, notes or TableInstrumentation())


def _peer_store(
    settings: ServeSettings, clock: Clock, lease_clock: LeaseClock, boot_id: str, notes: PeerInstrumentation
) -> PeerStore:
    listener, peers = settings.listen, settings.peers
    tls = listener.tls_cert_path is not None and listener.tls_key_path is not None
    files = PeerFiles(
        tls=tls,
        token=peers.token_file,
        authorities=peers.ca_cert,
        pair=(str(listener.tls_cert_path), str(listener.tls_key_path)) if tls else None,
    )
    try:
        credentials = PeerCredentials(files, clock)
    except InvalidInput as error:
        raise UsageError(f"--peer-service: {error.detail.rstrip('.')}") from error
    return PeerStore(
        transport=HttpPeerTransport(credentials),
        clock=clock,
        lease_clock=lease_clock,
        boot_id=boot_id,
        settings=PeerSettings(
            names=tuple(ServiceName(each.host, each.port) for each in settings.peer_services),
            policy=settings.policy,
            expect=peers.expect,
            pools_limit=2 * settings.limits.pools,
            bytes_limit=2 * settings.limits.registrations_bytes,
        ),
        instrumentation=notes,
    )


def open_place(table: DynamoSettings, what: str) -> "tuple[Session, TableLocation]":
    """The AWS session of this process, and where the table is; nothing is called yet.

    Raises `UsageError` where the region is not known, and `StoreConfigError` where the extra that ``what`` needs is not
    installed or the AWS configuration cannot be read.
    """
    if find_spec("botocore") is None:
        raise StoreConfigError(f"{what} needs an extra that is not installed: {INSTALL_DYNAMODB}")
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    from poolmuster.sources.dynamodb.aws import RegionMissing, find_location

    session = Session()
    try:
        place = find_location(session, table.table, table.region, table.endpoint_url)
    except RegionMissing as error:
        raise UsageError(str(error)) from error
    except BotoCoreError as error:
        raise StoreConfigError(f"the AWS configuration cannot be used: {error}") from error
    return session, place


def _dynamo_store(
    table: DynamoSettings, settings: ServeSettings, clock: Clock, boot_id: str, notes: TableInstrumentation
) -> RegistrationStore:
    session, place = open_place(table, "--registration-storage dynamodb")
    # Imported late, here and below: the extra is not everybody's.
    from poolmuster.sources.dynamodb.aws import AwsSigner, authorities
    from poolmuster.sources.dynamodb.client import DynamoClient
    from poolmuster.sources.dynamodb.table import DynamoTable

    try:
        tls = authorities(session)
    except OSError as error:
        raise StoreConfigError(f"the certificates that AWS_CA_BUNDLE names cannot be used: {error}") from error
    signer = AwsSigner(session, place)
    client = DynamoClient(place, signer, clock, ServerClock(), notes.consumed, tls)
    return PolledStore(
        table=DynamoTable(client, clock, notes),
        clock=clock,
        boot_id=boot_id,
        policy=settings.policy,
        instrumentation=notes,
    )
