"""Which store a service runs on."""

from importlib.util import find_spec

from poolmuster.ports.clock import Clock
from poolmuster.ports.store import RegistrationStore
from poolmuster.storage.memory import MemoryStore
from poolmuster.wiring.settings import DynamoSettings, ServeSettings, UsageError

INSTALL_DYNAMODB = "pip install 'poolmuster[dynamodb]'"


class StoreUnusable(Exception):
    """The store cannot be used on this machine. The text is one line that says what to do."""


def build_store(settings: ServeSettings, clock: Clock, boot_id: str) -> RegistrationStore:
    """The store that ``settings`` name, not yet running. Raises `StoreUnusable`, `UsageError`."""
    if settings.dynamodb is None:
        return MemoryStore(clock, settings.lease_ms, settings.heartbeat_interval_ms)
    return _dynamo_store(settings.dynamodb, settings, clock, boot_id)


def _dynamo_store(table: DynamoSettings, settings: ServeSettings, clock: Clock, boot_id: str) -> RegistrationStore:
    if find_spec("botocore") is None:
        raise StoreUnusable(f"--registration-storage dynamodb needs an extra that is not installed: {INSTALL_DYNAMODB}")
    # Imported late: the extra is not everybody's.
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    from poolmuster.storage.dynamodb.access import Access, RegionMissing, find_place
    from poolmuster.storage.dynamodb.calls import Calls
    from poolmuster.storage.dynamodb.store import DynamoStore, TableNotes
    from poolmuster.storage.dynamodb.table_clock import TableClock

    session = Session()
    try:
        place = find_place(session, table.table, table.region, table.endpoint_url)
    except RegionMissing as error:
        raise UsageError(str(error)) from error
    except BotoCoreError as error:
        raise StoreUnusable(f"the AWS configuration cannot be used: {error}") from error
    access, table_clock = Access(session, place), TableClock()
    return DynamoStore(
        calls=Calls(place, access, clock, table_clock, lambda kind, units: None),
        access=access,
        clock=clock,
        table_clock=table_clock,
        boot_id=boot_id,
        lease_ms=settings.lease_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        notes=TableNotes(),
    )
