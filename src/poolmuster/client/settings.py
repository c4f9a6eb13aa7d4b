"""What a client is told once: where the service is and how long to wait for it."""

import msgspec

DEFAULT_URL = "http://127.0.0.1:8080"


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one client. How it proves who it is and whom it trusts belong here as well.

    ``urls`` are base URLs of instances of one service, tried in this order. An answer, a line of a watch included,
    may have ``answer_limit_bytes``. A watch that brings nothing for ``silence_limit_ms`` is taken for dead; the
    service sends something every 5 s, so that is three intervals. Pools that an incomplete list lacked stay usable
    for ``unconfirmed_limit_ms``.
    """

    urls: tuple[str, ...] = (DEFAULT_URL,)
    connect_timeout_s: float = 2.0
    request_timeout_s: float = 10.0
    answer_limit_bytes: int = 512 * 1024 * 1024
    silence_limit_ms: int = 15_000
    backoff_first_ms: int = 250
    backoff_limit_ms: int = 10_000
    unconfirmed_limit_ms: int = 3_600_000
