"""HTTP requests to peers, each by a connection of its own to the address and no other.

No proxy, redirect, cookie or kept connection: the response must be of the instance that is at the address now.
"""

import errno
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import aiohttp
import msgspec
from yarl import URL

from poolmuster import __version__
from poolmuster.model.source import SourceReason
from poolmuster.sources.peers.credentials import PeerCredentials
from poolmuster.sources.peers.dns import ServiceName, SystemResolver
from poolmuster.sources.peers.errors import PeerReadError, PeerRefused, bad_answer

CONNECT_S = 1.0
"""A lost segment is sent again after one second: by then a new connection is more likely to succeed."""

CONNECT_TLS_S = 1.5
READ_BUFFER_BYTES = 64 * 1024
LIST_PATH, FEED_PATH, STREAM_PATH = "/peer/v1/list", "/peer/v1/feed", "/peer/v1/stream"
NDJSON = "application/x-ndjson"
CLIENT_CERTIFICATE_HINT = " The certificate of this instance, which is sent to it, has to be for clients as well."
"""A peer that does not accept a certificate in the handshake cuts the connection."""

STATUS_ERRORS = {
    401: (SourceReason.FORBIDDEN, "It does not accept the credentials of this instance (401)."),
    403: (SourceReason.FORBIDDEN, "The credentials of this instance do not have the role 'peer' there (403)."),
    404: (SourceReason.BAD_ANSWER, "It does not replicate (404): --peer-service is not set there."),
    503: (SourceReason.UNREACHABLE, "It is stopping, or has too many requests of peers (503)."),
}


class PeerAddress(msgspec.Struct, frozen=True):
    """An address, and the host that its certificate must be for."""

    address: str
    host: str


class PeerResponse(NamedTuple):
    """A response that has begun. ``boot_id`` is that of the instance, where the headers have it.

    ``pieces`` is the body, in pieces as they arrive. It raises `PeerReadError` where the body is cut.
    """

    boot_id: str | None
    pieces: AsyncIterator[bytes]


class PeerTransport(AbstractAsyncContextManager[Any], Protocol):
    """The network of the store. It is open while it is entered."""

    async def resolve(self, name: ServiceName) -> frozenset[str]:
        """The addresses of ``name``. Raises `ResolverError`. May take any time."""
        ...

    def request(
        self, peer: PeerAddress, path: str, after: tuple[str, int] = ("", 0), *, head: bool = False
    ) -> AbstractAsyncContextManager[PeerResponse]:
        """Request ``path``; raises `PeerReadError` or `PeerRefused` on entry. May take any time.

        ``after`` is the boot that is read, and the number in its log up to which it is known. With ``head`` the
        response has no body.
        """
        ...


class HttpPeerTransport:
    """`PeerTransport` by aiohttp."""

    def __init__(self, credentials: PeerCredentials) -> None:
        self._credentials = credentials
        self._resolver = SystemResolver()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"poolmuster/{__version__}", "Accept": NDJSON, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_S if self._credentials.context is None else CONNECT_TLS_S
            ),
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def resolve(self, name: ServiceName) -> frozenset[str]:
        return await self._resolver.resolve(name)

    @asynccontextmanager
    async def request(
        self, peer: PeerAddress, path: str, after: tuple[str, int] = ("", 0), *, head: bool = False
    ) -> AsyncIterator[PeerResponse]:
        assert self._session is not None, "a transport is entered before it is used"
        self._credentials.refresh()
        context, authorization = self._credentials.context, self._credentials.authorization
        query = {} if path == LIST_PATH else {"boot": after[0], "after": str(after[1])}
        try:
            response = await self._session.request(
                "HEAD" if head else "GET",
                URL(f"{'http' if context is None else 'https'}://{peer.address}{path}").with_query(query),
                headers={} if authorization is None else {"Authorization": authorization},
                ssl=True if context is None else context,
                server_hostname=None if context is None else peer.host,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _translate(error, CLIENT_CERTIFICATE_HINT if self._credentials.shows_certificate else "") from error
        try:
            if response.status != 200:
                unknown = SourceReason.BAD_ANSWER, f"It answers with status {response.status}."
                raise PeerReadError(*STATUS_ERRORS.get(response.status, unknown))
            yield PeerResponse(response.headers.get("Poolmuster-Instance"), _pieces(response))
        finally:
            response.close()


async def _pieces(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for piece in response.content.iter_any():
            yield piece
    except (aiohttp.ClientError, OSError) as error:
        raise _translate(error) from error


def _translate(error: Exception, hint: str = "") -> Exception:
    """What ``error`` means of the peer; ``hint`` is added where the connection was cut."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            detail = f"Its certificate is not accepted: {error.certificate_error}."
        case aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            detail = "TLS failed with it."
        case TimeoutError():
            return PeerReadError(SourceReason.TIMEOUT, "It accepts no connection.")
        case aiohttp.ClientConnectorError() if error.os_error.errno == errno.ECONNREFUSED:
            return PeerRefused()
        case aiohttp.ClientConnectorError():
            detail = f"It cannot be reached: {error.os_error.strerror or error}."
        case aiohttp.ClientResponseError() | ValueError():
            return bad_answer("Its response is not valid HTTP.")
        case _:
            detail = f"The connection was cut.{hint}"
    return PeerReadError(SourceReason.UNREACHABLE, detail)
