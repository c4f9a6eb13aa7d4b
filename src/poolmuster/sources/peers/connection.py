"""Reads one address as its schedule decides: polls and streams, the identification beside a stream, and full syncs."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TypeVar

from poolmuster.model.source import SourceReason
from poolmuster.ports.clock import Clock
from poolmuster.replication.decoder import DelayEstimator, OutOfSync
from poolmuster.replication.messages import PeerMessage
from poolmuster.sources.peers.codec import decode_delta, decode_snapshot_line, lines_of
from poolmuster.sources.peers.deadline import Deadline
from poolmuster.sources.peers.errors import PeerReadError, PeerRefused, bad_answer
from poolmuster.sources.peers.importer import Importer
from poolmuster.sources.peers.instrumentation import DELTA, GOOD, IN, REFUSED, SNAPSHOT, PeerLog
from poolmuster.sources.peers.node import Node, Received
from poolmuster.sources.peers.schedule import IDENTIFY_MS, ReadEnd, ReadMode, ReadSchedule
from poolmuster.sources.peers.transport import FEED_PATH, LIST_PATH, STREAM_PATH, PeerAddress, PeerTransport

FIRST_MESSAGE_MS = 1_000
"""The limit for the first message of a stream, before the peer is polled instead."""

SILENT_MS = 3_000
"""The limit between two messages of a response."""

RESPONSE_LIMIT_MS = 30_000
"""The limit for a response that ends: 20,000 pools are two seconds of work on a machine that is not busy."""

RESPONSE_LINES_LIMIT = 20_000
"""The limit for a response that ends: far more lines than all pools of the largest instance take."""

NEEDS_REPAIR = (SourceReason.FORBIDDEN, SourceReason.BAD_ANSWER)

T = TypeVar("T")


class AnotherInstance(Exception):
    """The address leads to another instance than the one whose stream is read, or to this one."""


class PeerConnection:
    """Reads the instance at ``peer``.

    ``on_read`` is called after each read that may make a full sync useful, with this peer or another.
    """

    def __init__(
        self,
        peer: PeerAddress,
        node: Node,
        transport: PeerTransport,
        clock: Clock,
        peer_log: PeerLog,
        on_read: Callable[[], None],
    ) -> None:
        self.peer = peer
        self._node = node
        self._transport = transport
        self._clock = clock
        self._peer_log = peer_log
        self._on_read = on_read
        self._importer = Importer(peer.address, node)
        self._schedule = ReadSchedule(clock.monotonic_ms())
        self._tasks: set[asyncio.Task[None]] = set()
        self._stream: Deadline | None = None
        """The deadline of the present stream."""
        self._stream_trial: asyncio.Task[None] | None = None
        self._full_sync: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                started_ms = self._clock.monotonic_ms()
                end = await self._read()
                now_ms = self._clock.monotonic_ms()
                await self._clock.sleep_ms(self._schedule.next_read_ms(end, started_ms, now_ms) - now_ms)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # The errors of cancelled tasks lead to this object by their tracebacks: together they would be cycles.
            self._stream_trial = self._full_sync = None

    async def _read(self) -> ReadEnd:
        """Read once, and record a failure."""
        try:
            match self._mode():
                case ReadMode.STREAM:
                    await self._follow_stream(FIRST_MESSAGE_MS)
                    return ReadEnd.STREAM_ENDED
                case ReadMode.AWAIT_STREAM if self._stream_trial is not None:
                    await asyncio.wait([self._stream_trial])
                    return ReadEnd.STREAM_ENDED
                case ReadMode.POLL_AND_TRY_STREAM if not _is_running(self._stream_trial):
                    self._stream_trial = self._start(self._follow_stream, SILENT_MS)
            await self._poll()
        except PeerRefused:
            self._node.record_refused(self.peer.address)
            self._peer_log.read_ended(self.peer.address, REFUSED, "Nothing listens there.")
        except PeerReadError as error:
            self._record_failed(error.reason, error.detail)
            return ReadEnd.NEEDS_REPAIR if error.reason in NEEDS_REPAIR else ReadEnd.FAILED
        except TimeoutError:
            self._record_failed(SourceReason.TIMEOUT, "It does not answer.")
        except OutOfSync:
            self._peer_log.read_ended(
                self.peer.address, SourceReason.BAD_ANSWER, "A message does not follow from those before it."
            )
        except Exception as error:  # noqa: BLE001
            # No input of a peer may end this instance.
            self._peer_log.unexpected(self.peer.address, error)
            self._record_failed(SourceReason.INTERNAL, f"{type(error).__name__}. The log of this instance has more.")
            return ReadEnd.NEEDS_REPAIR
        else:
            return ReadEnd.POLLED
        return ReadEnd.FAILED

    def _mode(self) -> ReadMode:
        now_ms = self._clock.monotonic_ms()
        member = self._node.membership.member(self.peer.address)
        status = None if member is None else member.source_status(now_ms)
        return self._schedule.mode(
            now_ms,
            own=self._is_own,
            load_balancer=status is not None and status.reason is SourceReason.LOAD_BALANCER,
            stream_delivers=self._stream is not None and self._stream.extended,
        )

    @property
    def _is_own(self) -> bool:
        member = self._node.membership.member(self.peer.address)
        return member is not None and member.own

    def _record_failed(self, reason: SourceReason, detail: str) -> None:
        self._node.record_failed(self.peer.address, reason, detail)
        self._peer_log.read_ended(self.peer.address, reason, detail)

    def _start(self, work: Callable[[T], Awaitable[None]], argument: T) -> "asyncio.Task[None]":
        """Run ``work`` beside the reads. Those alone decide the status of the peer."""
        task = asyncio.create_task(self._count_failure(work, argument))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _count_failure(self, work: Callable[[T], Awaitable[None]], argument: T) -> None:
        try:
            await work(argument)
        except (PeerRefused, PeerReadError, TimeoutError, OutOfSync) as error:
            self._node.instrumentation.read_ended(getattr(error, "reason", SourceReason.TIMEOUT))
        except Exception as error:  # noqa: BLE001
            # As in `_read`.
            self._peer_log.unexpected(self.peer.address, error)

    async def _poll(self) -> None:
        was_own, good = self._is_own, False
        try:
            await self._read_response(FEED_PATH)
            good = True
        finally:
            self._schedule.poll_ended(self._clock.monotonic_ms(), good=good)
        if not was_own:
            self._peer_log.read_ended(self.peer.address, GOOD)
        self._on_read()

    async def _follow_stream(self, first_message_ms: int) -> None:
        """Read a stream until it ends, or until the address is found to lead to another instance."""
        started_ms, refused, suspect = self._clock.monotonic_ms(), False, False
        stream = self._stream = Deadline(self._clock, first_message_ms)
        identification = self._start(self._identify, stream)
        try:
            async with stream:
                await self._read_stream(stream)
        except AnotherInstance:
            suspect = True
        except PeerRefused:
            refused = True
            raise
        finally:
            identification.cancel()
            self._stream, now_ms = None, self._clock.monotonic_ms()
            if suspect:
                self._schedule.suspect(now_ms)
            else:
                self._schedule.stream_ended(started_ms, now_ms, delivered=stream.extended, refused=refused)

    async def _read_stream(self, stream: Deadline) -> None:
        first_read = True
        async with aclosing(self._apply_messages(STREAM_PATH, stream)) as messages:
            async for message in messages:
                if first_read:
                    self._peer_log.read_ended(self.peer.address, GOOD)
                if first_read or not message.more:
                    self._on_read()
                if self._is_own:
                    raise AnotherInstance
                first_read = False

    async def _identify(self, stream: Deadline) -> None:
        """End ``stream`` once another boot answers at the address: there is more than one instance behind it."""
        for wait_ms in itertools.chain(IDENTIFY_MS, itertools.repeat(IDENTIFY_MS[-1])):
            await self._clock.sleep_ms(wait_ms)
            with suppress(PeerRefused, PeerReadError, TimeoutError):
                async with (
                    Deadline(self._clock, SILENT_MS),
                    self._transport.request(self.peer, FEED_PATH, head=True) as response,
                ):
                    if response.boot_id is not None and self._importer.boot_id not in ("", response.boot_id):
                        stream.end(AnotherInstance)

    def start_full_sync_if_due(self, now_ms: int) -> None:
        """Take the peer's snapshot beside the reads, where that helps this list now."""
        boot_id, summary = self._importer.boot_id, self._importer.summary
        if summary is None or boot_id == self._node.boot_id or _is_running(self._full_sync):
            return
        trusted = self._node.membership.can_trust(*summary)
        wanted = trusted or self._node.needs_snapshot_of(boot_id, now_ms)
        if wanted and self._schedule.is_sync_due(now_ms, trusted=trusted):
            self._schedule.sync_started(now_ms, trusted=trusted)
            self._full_sync = self._start(self._read_response, LIST_PATH)

    async def _read_response(self, path: str) -> None:
        """Apply a response that ends."""
        async with (
            Deadline(self._clock, RESPONSE_LIMIT_MS),
            Deadline(self._clock, SILENT_MS) as deadline,
            aclosing(self._apply_messages(path, deadline)) as messages,
        ):
            async for message in messages:
                if not message.more:
                    return
            raise bad_answer("Its response ends too early.")

    async def _apply_messages(self, path: str, deadline: Deadline) -> AsyncGenerator[PeerMessage, None]:
        """Apply the messages of a response, and yield each after that. Raises `PeerReadError`, `PeerRefused`."""
        requested_ms, delays = self._node.notice_pause(), DelayEstimator()
        first: Received | None = None
        lines, size_bytes = 0, 0
        async with self._transport.request(self.peer, path, self._importer.position) as response:
            async for line in lines_of(response.pieces):
                arrived_ms = self._node.notice_pause()
                message = decode_snapshot_line(line) if path == LIST_PATH else decode_delta(line)
                self._node.instrumentation.message(IN, SNAPSHOT if path == LIST_PATH else DELTA, len(line))
                deadline.extend(SILENT_MS)
                if path == STREAM_PATH:
                    as_of_ms = delays.to_local_ms(message.sent_ms, arrived_ms)
                else:
                    lines, size_bytes = lines + 1, size_bytes + len(line)
                    if lines > RESPONSE_LINES_LIMIT or size_bytes > self._node.settings.bytes_limit:
                        raise bad_answer("Its response does not end.")
                    # It counts from the start of the request: no delay of it lengthens a lease.
                    since_first_ms = 0 if first is None else message.sent_ms - first.message.sent_ms
                    as_of_ms = min(arrived_ms, requested_ms + max(0, since_first_ms))
                received = Received(message, as_of_ms, 0 if path == STREAM_PATH else arrived_ms - as_of_ms)
                first = first or received
                await self._importer.apply(received, first)
                if not message.more:
                    first = None
                yield message
                await asyncio.sleep(0)


def _is_running(task: "asyncio.Task[None] | None") -> bool:
    return task is not None and not task.done()
