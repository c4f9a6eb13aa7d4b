"""What instances say to each other about the pools that are registered with them.

Nothing here is a time of day. ``sent_ms`` and ``up_ms`` are the sender's monotonic clock and how long it has been up;
all else is a duration, counted from the moment of sending. ``remaining_ms`` runs by the plain clock: what a sender
grants its own list for a pause of its own process is nobody else's business.

A stream is a row of `Delta`es, each saying what happened at its sender since the one before; one without entries is
the ping. ``seq`` numbers what happened, per boot. A receiver that asks for what happened after ``seq`` 0 gets all that
was registered with the sender; asking again after the last ``seq`` it has, it misses nothing. So reading once a second
and a stream are the same messages, and a lost or repeated one does no harm.
"""

import msgspec

from poolmuster.model.change import DeregistrationReason

WIRE_VERSION = 1


class Registered(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="registered", omit_defaults=True):
    """A registration that was taken, whole. ``number`` stands for it in later `HeartbeatAccepted`s of the same boot.

    ``again``: its relay had deregistered, and came back after a successor.
    """

    number: int
    registration: msgspec.Raw
    relay_id: str | None = None
    lease_ms: int
    remaining_ms: int
    readmitted: bool = False


class Renewed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="renewed"):
    """The registration of this number was renewed with the same facts by the same relay."""

    number: int
    remaining_ms: int


class Deregistered(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="left", omit_defaults=True):
    """A pool was deregistered ``since_ms`` ago.

    ``ended_since_ms`` is how long ago the renewal was that it ended; ``kept_ms`` how long it must still be remembered.
    """

    cluster_id: str
    namespace: str
    dgd_name: str
    relay_id: str | None = None
    since_ms: int
    ended_since_ms: int
    kept_ms: int
    reason: DeregistrationReason | None = None
    detail: str | None = None


Entry = Registered | Renewed | Deregistered


class MemberSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the sender knows of one address behind the name.

    ``accounted_since_ms``: all that was registered there until so long ago is known to the sender, or has run out;
    ``sure``: that is so up to now, within what an answer may take. ``boot_id`` is who was last heard there, where it
    is not known to be dead. ``doubt``: an occupant before may have taken what nobody knows and what has not run out.
    """

    address: str
    boot_id: str | None = None
    synced_ms_ago: int
    synced: bool
    sync_gap: bool = False


class SyncSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How far the sender's own list can be trusted. It is complete where all of this is true and every row is sure.

    ``warm``: nothing is missing from before its start. ``named``: it knows who stands behind the name.
    """

    warmed_up: bool
    names_resolved: bool
    members: tuple[MemberSummary, ...] = ()


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What was registered with the sender, and deregistered there, after ``after`` and up to ``seq``.

    ``more``: what was known at that moment goes on in the next one, so that no message is long.
    """

    boot_id: str
    uptime_ms: int
    sent_ms: int
    after: int
    seq: int
    more: bool = False
    summary: SyncSummary
    entries: tuple[Entry, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that the sender lists or remembers, of whomever it heard it; for an instance that starts.

    ``more``: it goes on in the next one. The statement of the first is the one that counts.
    """

    boot_id: str
    uptime_ms: int
    sent_ms: int
    more: bool = False
    summary: SyncSummary
    entries: tuple[Registered | Deregistered, ...] = ()
