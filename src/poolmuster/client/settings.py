"""What a client is told once: where the service is and how long to wait for it."""

import msgspec

from poolmuster.model.errors import InvalidInput
from poolmuster.model.registration import redact_url, validate_url

DEFAULT_URL = "http://127.0.0.1:8080"


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one client: where the service is, how this client proves who it is, whom it trusts, its patience.

    ``urls`` are base URLs of instances of one service, tried in this order. An answer, a line of a watch included,
    may have ``answer_limit_bytes``. A watch that brings nothing for ``silence_limit_ms`` is taken for dead; the
    service sends something every 5 s, so that is three intervals. Pools that an incomplete list lacked stay usable
    for ``unconfirmed_limit_ms``.

    The rest are paths of files, which are read again when they change. ``token_file`` holds a bearer token.
    ``ca_cert`` holds the certificates (PEM) to trust instead of the system's. ``client_cert`` holds the certificate to
    show, with any intermediates, and its key unless ``client_key`` does.
    """

    urls: tuple[str, ...] = (DEFAULT_URL,)
    connect_timeout_s: float = 2.0
    request_timeout_s: float = 10.0
    answer_limit_bytes: int = 512 * 1024 * 1024
    silence_limit_ms: int = 15_000
    backoff_first_ms: int = 250
    backoff_limit_ms: int = 10_000
    unconfirmed_limit_ms: int = 3_600_000
    token_file: str | None = None
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None

    def __post_init__(self) -> None:
        """Raise `InvalidInput` where a URL is none: asked for again and again, it would look like an outage.

        And for a key without its certificate.
        """
        if not self.urls:
            raise InvalidInput("A client needs the URL of at least one instance.")
        for url in self.urls:
            if (fault := validate_url(url)) is not None:
                raise InvalidInput(f"{redact_url(url)!r} is not the base URL of a service: it {fault}.")
        if self.client_key is not None and self.client_cert is None:
            raise InvalidInput("A client key needs the client certificate that it belongs to.")
