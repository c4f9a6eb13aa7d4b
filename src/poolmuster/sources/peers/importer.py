"""Applies the messages of one peer to the node.

A read may be cancelled wherever it awaits, and loses nothing. From decoding, which advances the decoder, to the sink,
which applies every update whole, nothing is awaited. Before an item is left out, and where a decoded message cannot be
applied, the decoder is dropped, so that the next read begins anew.
"""

from poolmuster.replication.decoder import DeltaDecoder, OutOfSync, decode_snapshot
from poolmuster.replication.lww import Tombstone, Write
from poolmuster.replication.messages import Delta, SyncSummary
from poolmuster.sources.peers.errors import bad_answer
from poolmuster.sources.peers.node import Node, Received


class Importer:
    """The messages of ``address``. Two responses, of a poll and of a stream, may be read at the same time."""

    def __init__(self, address: str, node: Node) -> None:
        self._address = address
        self._node = node
        self._decoder: DeltaDecoder | None = None
        self.boot_id = ""
        """The boot that sent the last delta, or "" before the first."""
        self.summary: tuple[SyncSummary, int] | None = None
        """The last summary of the peer, and its time on this clock."""

    @property
    def position(self) -> tuple[str, int]:
        """The boot that is read, and the number in its log up to which it is known."""
        if self.boot_id == self._node.boot_id:
            return self.boot_id, self._node.replica.log.seq
        return ("", 0) if self._decoder is None else (self._decoder.boot_id, self._decoder.seq)

    async def apply(self, received: Received, first: Received) -> None:
        """Apply a message. ``first`` is the one with which its delta or snapshot began.

        Raises `PeerReadError`, `OutOfSync`.
        """
        message = received.message
        if message.boot_id != first.message.boot_id:
            raise bad_answer("Its response has messages of two instances.")
        try:
            items = self._decode(received)
            if left_out := self._node.count_left_out(items):
                self._node.instrumentation.skipped(left_out)
                self._decoder = None
            await self._node.apply_remote(self._address, items, None if message.more else first)
        except Exception as error:
            if self._decoder is not None and isinstance(error, OutOfSync):
                self._decoder.seq = error.seq
            else:
                self._decoder = None
            raise
        if left_out:
            raise bad_answer("It has more pools than an instance may hold.")
        if isinstance(message, Delta):
            self.boot_id = message.boot_id
            if not message.more:
                self.summary = (message.summary, received.as_of_ms)
            if isinstance(first.message, Delta) and first.message.after:
                self._measure_lag(items)

    def _decode(self, received: Received) -> list[Write | Tombstone]:
        message = received.message
        if message.boot_id == self._node.boot_id:
            return []
        if isinstance(message, Delta):
            items, skipped = self._decode_delta(message, received)
        else:
            items, skipped = decode_snapshot(
                message.entries, message.boot_id, received.as_of_ms, received.uncertainty_ms
            )
        if skipped:
            self._node.instrumentation.skipped(skipped)
        return items

    def _decode_delta(self, delta: Delta, received: Received) -> tuple[list[Write | Tombstone], int]:
        if self._decoder is None or self._decoder.boot_id != delta.boot_id:
            self._decoder = DeltaDecoder(delta.boot_id)
        skipped = self._decoder.skipped
        items = self._decoder.decode(delta, received.as_of_ms, received.uncertainty_ms)
        if self._decoder.size_bytes > (limit := self._node.settings.bytes_limit):
            raise bad_answer(f"Its registrations take more than {limit} bytes.")
        return items, self._decoder.skipped - skipped

    def _measure_lag(self, items: list[Write | Tombstone]) -> None:
        now_ms = self._node.notice_pause()
        for item in items:
            if isinstance(item, Write):
                self._node.instrumentation.renewal_came(max(0, now_ms - item.renewed_ms))
