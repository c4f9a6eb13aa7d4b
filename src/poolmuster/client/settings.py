"""Settings of a client: where the service is, with which credentials, and how long to wait for it."""

import msgspec

from poolmuster.model.errors import InvalidInput
from poolmuster.model.registration import redact_url, validate_url

DEFAULT_URL = "http://127.0.0.1:8080"


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one client. Raises `InvalidInput` for a bad URL, and for a key without its certificate.

    ``urls`` are base URLs of instances of one service, tried in this order. A response, and a line of a watch, may have
    ``answer_limit_bytes``. A watch that brings nothing for ``silence_limit_ms`` counts as dead; the service sends
    something every 5 s, so that is three intervals. Pools that an incomplete list lacked stay usable for
    ``unconfirmed_limit_ms``.

    The rest are paths of files, which are read again when they change. ``token_file`` holds a bearer token.
    ``ca_cert`` holds the certificates (PEM) to trust instead of the system's. ``client_cert`` holds the certificate to
    present, with any intermediates, and its key unless ``client_key`` does.
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
        """A bad URL is refused here: later it would look like an outage, as a follower tries for ever."""
        if not self.urls:
            raise InvalidInput("A client needs the URL of at least one instance.")
        for url in self.urls:
            if (fault := validate_url(url)) is not None:
                raise InvalidInput(f"{redact_url(url)!r} is not the base URL of a service: it {fault}.")
        if self.client_key is not None and self.client_cert is None:
            raise InvalidInput("A client key needs the client certificate that it belongs to.")
