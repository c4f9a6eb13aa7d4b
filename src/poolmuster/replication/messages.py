"""Messages between instances: their JSON, and its conversion from and to writes and tombstones.

No message holds a time of day. ``sent_ms`` is the sender's monotonic clock and ``uptime_ms`` the age of its process;
every other time is a duration, counted from the moment of sending. ``remaining_ms`` has no credit for pauses of the
sender: each instance credits its own pauses alone.

A stream is a sequence of `Delta`s. Each holds what was registered and deregistered at its sender since the one before;
one without entries is a ping. ``seq`` numbers the events of one boot. A receiver that asks for what is after ``seq`` 0
gets all that is registered with the sender; one that asks again after the last ``seq`` it has misses nothing. So a poll
once a second and a stream have the same messages, and one that is lost or repeated does no harm.

The types of the fields bound their values: msgspec decodes no message with a value that no instance sends.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from poolmuster.model.change import DeregistrationReason, PoolDeregistration
from poolmuster.model.key import PoolKey, check_key
from poolmuster.model.registration import Registration, parse_registration
from poolmuster.replication.lww import Tombstone, Write

CLOCK_LIMIT_MS = 2**53
LONGEST_LEASE_MS = 86_400_000
LONGEST_MS = 10 * LONGEST_LEASE_MS
AHEAD_LIMIT_MS = 120_000
"""How far ahead of its sender's clock a write may stand: each is later than all others of its pool, and those that
instances accept are at most half as far ahead."""

ENTRIES_LIMIT = 500

Text = Annotated[str, Meta(max_length=4_096)]
BootId = Annotated[str, Meta(min_length=1, max_length=4_096)]
ClockMs = Annotated[int, Meta(gt=-CLOCK_LIMIT_MS, lt=CLOCK_LIMIT_MS)]
Count = Annotated[int, Meta(ge=0, lt=CLOCK_LIMIT_MS)]
LeaseMs = Annotated[int, Meta(gt=0, le=LONGEST_LEASE_MS)]
RemainingMs = Annotated[int, Meta(ge=-LONGEST_MS, le=LONGEST_LEASE_MS + AHEAD_LIMIT_MS)]
UncertaintyMs = Annotated[int, Meta(ge=0, le=LONGEST_MS)]
SinceMs = Annotated[int, Meta(ge=-AHEAD_LIMIT_MS, le=LONGEST_MS)]


class Registered(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="registered", omit_defaults=True):
    """A whole registration. ``number`` stands for it in later `Renewed`s of the same boot.

    In a snapshot it may have been accepted up to ``uncertainty_ms`` later than ``remaining_ms`` says.
    """

    number: int
    registration: msgspec.Raw
    relay_id: Text | None = None
    lease_ms: LeaseMs
    remaining_ms: RemainingMs
    readmitted: bool = False
    uncertainty_ms: UncertaintyMs = 0


class Renewed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="renewed"):
    """The relay of the registration with this number renewed it unchanged."""

    number: int
    remaining_ms: RemainingMs


class Deregistered(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="deregistered", omit_defaults=True):
    """A pool was deregistered ``since_ms`` ago.

    The renewal that it ended was ``ended_since_ms`` ago; the tombstone is to be kept for another ``kept_ms``.
    """

    cluster_id: str
    namespace: str
    dgd_name: str
    relay_id: Text | None = None
    since_ms: SinceMs
    ended_since_ms: SinceMs
    kept_ms: Annotated[int, Meta(ge=0, le=LONGEST_MS)]
    reason: DeregistrationReason | None = None
    detail: Text | None = None


Entry = Registered | Renewed | Deregistered


class MemberSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the sender knows of one member.

    All that was registered there until ``synced_ms_ago`` is known to the sender or has expired; ``synced`` is whether
    that is recent enough for a complete list. ``boot_id`` is the boot that was last read there, where it is not known
    to have died. With a ``sync_gap`` a boot before it may have accepted registrations that are unknown and live.
    """

    address: Text
    boot_id: Text | None = None
    synced_ms_ago: Count
    synced: bool
    sync_gap: bool = False


class SyncSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How complete the sender's list is. It is complete where both flags are set and every member is ``synced``.

    ``warmed_up``: nothing is missing from before its start. ``names_resolved``: it knows the addresses of each name.
    """

    warmed_up: bool
    names_resolved: bool
    members: Annotated[tuple[MemberSummary, ...], Meta(max_length=1_000)] = ()


class PeerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """``more``: the rest follows in the next message, so that no message is long."""

    boot_id: BootId
    uptime_ms: Count
    sent_ms: ClockMs
    more: bool = False
    summary: SyncSummary


class Delta(PeerMessage, frozen=True, kw_only=True):
    """What was registered with the sender, and deregistered there, after ``after`` and up to ``seq``."""

    after: Count
    seq: Count
    entries: Annotated[tuple[Entry, ...], Meta(max_length=ENTRIES_LIMIT)] = ()


class Snapshot(PeerMessage, frozen=True, kw_only=True):
    """All that the sender knows, from every origin, for an instance that starts. Only the first ``summary`` counts."""

    entries: Annotated[tuple[Registered | Deregistered, ...], Meta(max_length=ENTRIES_LIMIT)] = ()


def entry_of(item: Write | Tombstone, number: int, now_ms: int) -> Registered | Deregistered:
    """``item`` as it is sent at ``now_ms``, a write with its ``number`` in the log, or 0 in a snapshot."""
    if isinstance(item, Write):
        return Registered(
            number=number,
            registration=msgspec.Raw(item.registration.pool.body),
            relay_id=item.relay_id,
            lease_ms=item.lease_ms,
            remaining_ms=item.remaining_ms(now_ms),
            readmitted=item.readmitted,
            uncertainty_ms=item.uncertainty_ms,
        )
    return Deregistered(
        cluster_id=item.key.cluster_id,
        namespace=item.key.namespace,
        dgd_name=item.key.dgd_name,
        relay_id=item.relay_id,
        since_ms=now_ms - item.deregistered_ms,
        ended_since_ms=now_ms - item.ended_ms,
        kept_ms=item.remaining_ms(now_ms),
        reason=item.deregistration.reason,
        detail=item.deregistration.detail,
    )


def item_of(entry: Registered | Deregistered, origin: str, as_of_ms: int, uncertainty_ms: int = 0) -> Write | Tombstone:
    """The item of an entry that the boot ``origin`` sent at ``as_of_ms`` of this clock, or ``uncertainty_ms`` later.

    Raises `InvalidInput`.
    """
    if isinstance(entry, Registered):
        renewed_ms = as_of_ms - (entry.lease_ms - entry.remaining_ms)
        uncertainty_ms += min(entry.uncertainty_ms, entry.lease_ms)
        return Write(registration_of(entry), entry.lease_ms, renewed_ms, origin, entry.readmitted, uncertainty_ms)
    key = PoolKey(entry.cluster_id, entry.namespace, entry.dgd_name)
    check_key(key)
    return Tombstone(
        deregistration=PoolDeregistration(key=key, relay_id=entry.relay_id, reason=entry.reason, detail=entry.detail),
        deregistered_ms=as_of_ms - entry.since_ms,
        ended_ms=as_of_ms - entry.ended_since_ms,
        kept_until_ms=as_of_ms + entry.kept_ms,
    )


def registration_of(entry: Registered) -> Registration:
    """The registration of ``entry``. Raises `InvalidInput`."""
    return Registration(parse_registration(bytes(entry.registration), lenient=True).pool, entry.relay_id)
