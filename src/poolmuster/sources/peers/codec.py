"""Messages as lines of JSON: written short, and read with nothing taken on trust."""

from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec

from poolmuster.model.registration import BODY_LIMIT_BYTES
from poolmuster.platform.ndjson import LineSplitter, SizeLimitExceeded
from poolmuster.replication.decoder import WRITE_AHEAD_LIMIT_MS
from poolmuster.replication.messages import Delta, Deregistered, Registered, Snapshot, SyncSummary
from poolmuster.sources.peers.errors import bad_answer

WORK_A_LINE = 200
"""What a line may cost to read, in renewals: two or three milliseconds."""

REGISTERED_WORK = 8
"""A registration that comes whole costs as much as so many renewals."""

BYTES_A_LINE = 64 * 1024
"""Registrations that a line may hold when another one is begun."""

LINE_LIMIT_BYTES = BYTES_A_LINE + BODY_LIMIT_BYTES + 256 * 1024
ENTRIES_LIMIT = 500
ROWS_LIMIT = 1_000
TEXT_LIMIT = 4_096
LONGEST_LEASE_MS = 86_400_000
LONGEST_MS = 10 * LONGEST_LEASE_MS
CLOCK_LIMIT_MS = 2**53
AHEAD_LIMIT_MS = 2 * WRITE_AHEAD_LIMIT_MS
"""How far ahead of its sender's clock anything may stand: each comes after all that was known of its pool, and what is
taken in stands no further ahead than half of it."""

M = TypeVar("M", Delta, Snapshot)

encode = msgspec.json.Encoder().encode
_delta = msgspec.json.Decoder(Delta)
_snapshot = msgspec.json.Decoder(Snapshot)


def decode_delta(line: bytes) -> Delta:
    """Raises `PeerTrouble`."""
    batch = _decode(_delta, line)
    if not 0 <= batch.after <= batch.seq < CLOCK_LIMIT_MS:
        raise bad_answer("It numbers what happened in a way that cannot be.")
    return batch


def decode_snapshot_line(line: bytes) -> Snapshot:
    """Raises `PeerTrouble`."""
    return _decode(_snapshot, line)


def _decode(decoder: "msgspec.json.Decoder[M]", line: bytes) -> M:
    try:
        message = decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_answer(f"It does not speak as a peer does: {str(error)[:200]}.") from error
    if not _is_valid(message):
        raise bad_answer("It says what no instance says.")
    return message


def _is_valid(message: Delta | Snapshot) -> bool:
    return (
        0 < len(message.boot_id) <= TEXT_LIMIT
        and 0 <= message.uptime_ms < CLOCK_LIMIT_MS
        and abs(message.sent_ms) < CLOCK_LIMIT_MS
        and len(message.entries) <= ENTRIES_LIMIT
        and _is_valid_summary(message.summary)
        and all(map(_is_valid_entry, message.entries))
    )


def _is_valid_summary(statement: SyncSummary) -> bool:
    return len(statement.members) <= ROWS_LIMIT and all(
        0 <= row.synced_ms_ago < CLOCK_LIMIT_MS and len(row.address) <= TEXT_LIMIT for row in statement.members
    )


def _is_valid_entry(entry: object) -> bool:
    if isinstance(entry, Registered):
        return (
            0 < entry.lease_ms <= LONGEST_LEASE_MS
            and -LONGEST_MS <= entry.remaining_ms <= entry.lease_ms + AHEAD_LIMIT_MS
            and _is_short(entry.relay_id)
        )
    if isinstance(entry, Deregistered):
        return (
            -AHEAD_LIMIT_MS <= entry.since_ms <= LONGEST_MS
            and -AHEAD_LIMIT_MS <= entry.ended_since_ms <= LONGEST_MS
            and 0 <= entry.kept_ms <= LONGEST_MS
            and _is_short(entry.relay_id)
            and _is_short(entry.detail)
        )
    remaining_ms = getattr(entry, "remaining_ms", 0)
    return -LONGEST_MS <= remaining_ms <= LONGEST_LEASE_MS + AHEAD_LIMIT_MS


def _is_short(text: str | None) -> bool:
    return text is None or len(text) <= TEXT_LIMIT


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of an answer. Raises `PeerTrouble` for one over `LINE_LIMIT_BYTES`."""
    splitter = LineSplitter(LINE_LIMIT_BYTES)
    try:
        async for piece in pieces:
            for line in splitter.feed(piece):
                if line:
                    yield line
    except SizeLimitExceeded as error:
        raise bad_answer("It sends a line that does not end.") from error
