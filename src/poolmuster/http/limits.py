"""Bounds on connections and requests."""

from enum import StrEnum

import msgspec


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may take. Sizes in bytes, times in seconds.

    ``send_stall_s`` is how long a client may leave a full buffer untouched before its connection is dropped. Where
    there are as many ``connections`` as may be, a new one is refused; or, if it ``makes_room``, an idle one is closed.
    """

    head_bytes: int = 16 * 1024
    head_s: float = 10.0
    body_s: float = 10.0
    idle_s: float = 75.0
    send_stall_s: float = 60.0
    connections: int = 10_000
    makes_room: bool = False


class HandshakeFailure(StrEnum):
    """Why a TLS handshake came to nothing. A closed set: these are values of a metric's label."""

    NO_TLS = "no_tls"
    UNKNOWN_AUTHORITY = "unknown_authority"
    EXPIRED_CERTIFICATE = "expired_certificate"
    NOT_YET_VALID = "not_yet_valid"
    BAD_CERTIFICATE = "bad_certificate"
    NO_SHARED_VERSION = "no_shared_version"
    REFUSED_BY_CLIENT = "refused_by_client"
    TIMEOUT = "timeout"
    GONE = "gone"
    OTHER = "other"


class HttpCounters(msgspec.Struct):
    """What the limits did, for metrics. Only ever grows, but for ``connections`` and ``handshakes``.

    A connection counts in ``handshakes`` until TLS has begun on it, and in ``connections`` from then on.
    """

    connections: int = 0
    refused_connections: int = 0
    malformed: int = 0
    heads_too_large: int = 0
    heads_too_slow: int = 0
    bodies_too_slow: int = 0
    bodies_too_large: int = 0
    sends_stalled: int = 0
    handshakes: int = 0
    handshakes_failed: dict[HandshakeFailure, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(HandshakeFailure, 0)
    )
