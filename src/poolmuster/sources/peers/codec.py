"""Messages as lines of JSON, and the bounds of a line. Every value of a received message is checked."""

from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec

from poolmuster.model.registration import BODY_LIMIT_BYTES
from poolmuster.platform.ndjson import LineSplitter, SizeLimitExceeded
from poolmuster.replication.messages import AHEAD_LIMIT_MS, Delta, Registered, Snapshot
from poolmuster.sources.peers.errors import bad_answer

WORK_A_LINE = 200
"""The limit of the work to read a line, in renewals: two or three milliseconds."""

REGISTERED_WORK = 8
"""The work of a whole registration, in renewals."""

BYTES_A_LINE = 64 * 1024
"""A line with so many bytes of registrations gets no further one."""

LINE_LIMIT_BYTES = BYTES_A_LINE + BODY_LIMIT_BYTES + 256 * 1024

M = TypeVar("M", Delta, Snapshot)

encode = msgspec.json.Encoder().encode
_deltas = msgspec.json.Decoder(Delta)
_snapshots = msgspec.json.Decoder(Snapshot)


def decode_delta(line: bytes) -> Delta:
    """Raises `PeerReadError`."""
    delta = _decode(_deltas, line)
    if delta.after > delta.seq:
        raise bad_answer("The numbers of a message are out of order.")
    return delta


def decode_snapshot_line(line: bytes) -> Snapshot:
    """Raises `PeerReadError`."""
    return _decode(_snapshots, line)


def _decode(decoder: "msgspec.json.Decoder[M]", line: bytes) -> M:
    try:
        message = decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_answer(f"A line is no message of a peer: {str(error)[:200]}.") from error
    for entry in message.entries:
        if isinstance(entry, Registered) and entry.remaining_ms > entry.lease_ms + AHEAD_LIMIT_MS:
            raise bad_answer("More of a lease remains than a peer grants.")
    return message


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a response that are not empty. Raises `PeerReadError` for one that is too long."""
    splitter = LineSplitter(LINE_LIMIT_BYTES)
    try:
        async for piece in pieces:
            for line in splitter.feed(piece):
                if line:
                    yield line
    except SizeLimitExceeded as error:
        raise bad_answer("It sends a line that does not end.") from error
