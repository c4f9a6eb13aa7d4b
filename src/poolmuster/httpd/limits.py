"""Bounds on connections and requests."""

import msgspec


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may take. Sizes in bytes, times in seconds.

    ``send_stall_s`` is how long a client may leave a full buffer untouched before its connection is dropped.
    """

    head_bytes: int = 16 * 1024
    head_s: float = 10.0
    body_s: float = 10.0
    idle_s: float = 75.0
    send_stall_s: float = 60.0
    connections: int = 10_000


class HttpCounters(msgspec.Struct):
    """What the limits did, for metrics. Only ever grows, but for ``connections``."""

    connections: int = 0
    refused_connections: int = 0
    malformed: int = 0
    heads_too_large: int = 0
    heads_too_slow: int = 0
    bodies_too_slow: int = 0
    bodies_too_large: int = 0
    sends_stalled: int = 0
