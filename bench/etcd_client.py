"""As much of etcd's interface as is measured, over gRPC.

Its messages are few and flat, so they are written here by the encoding's own rules instead of being generated; answers
are left undecoded, which spares the load generator's time and none of the server's.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import grpc

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
LEASE_S = 600

Call = Callable[[bytes], Any]


def number(field: int, value: int) -> bytes:
    """A field that holds a whole number of at least zero."""
    return _varint(field << 3) + _varint(value)


def content(field: int, value: bytes) -> bytes:
    """A field that holds bytes, or another message."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def put(key: bytes, value: bytes, lease: int) -> bytes:
    """A put of ``value`` that ends with ``lease``."""
    return content(1, key) + content(2, value) + number(3, lease)


def prefix_range(prefix: bytes) -> bytes:
    """What is under ``prefix``."""
    return content(1, prefix) + content(2, prefix[:-1] + bytes([prefix[-1] + 1]))


def watch_prefix(prefix: bytes) -> bytes:
    """A watch of what is under ``prefix``."""
    return content(1, prefix_range(prefix))


def grant(lease: int) -> bytes:
    """A lease under a number of our choice."""
    return number(1, LEASE_S) + number(2, lease)


def keep_alive(lease: int) -> bytes:
    """A renewal of ``lease``."""
    return number(1, lease)


class Client:
    """One connection to etcd."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", OPTIONS)
        self.put: Call = self.channel.unary_unary("/etcdserverpb.KV/Put")
        self.range: Call = self.channel.unary_unary("/etcdserverpb.KV/Range")
        self.grant: Call = self.channel.unary_unary("/etcdserverpb.Lease/LeaseGrant")
        self.keep_alive: Callable[..., Any] = self.channel.stream_stream("/etcdserverpb.Lease/LeaseKeepAlive")
        self.watch: Callable[..., Any] = self.channel.stream_stream("/etcdserverpb.Watch/Watch")

    async def __aenter__(self) -> Self:
        await self.channel.channel_ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()


async def once(message: bytes) -> AsyncIterator[bytes]:
    """A stream of one request."""
    yield message
