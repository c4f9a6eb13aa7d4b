"""The network towards peers: one connection for each question, by HTTP or HTTPS, to the address and no other.

No proxies, no redirects, no cookies, no connection used twice: what answers must be who is at the address now.
"""

import errno
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Protocol, Self

import aiohttp
from yarl import URL

from poolmuster import __version__
from poolmuster.model.source import SourceReason
from poolmuster.sources.peers.credentials import PeerCredentials
from poolmuster.sources.peers.dns import ServiceName, SystemResolver
from poolmuster.sources.peers.errors import PeerRefused, PeerTrouble, bad_answer

CONNECT_S = 1.0
"""A segment that was lost is sent again after one second: by then a new connection has the better chance."""

CONNECT_TLS_S = 1.5
READ_BUFFER_BYTES = 64 * 1024
LIST_PATH, FEED_PATH, STREAM_PATH = "/peer/v1/list", "/peer/v1/feed", "/peer/v1/stream"
CONNECTION_LOST = "The connection broke off."
NDJSON = "application/x-ndjson"


class PeerLocation(Protocol):
    """Where an address stands: behind the name of the host that its certificate must be for."""

    @property
    def address(self) -> str: ...

    @property
    def host(self) -> str: ...


class PeerResponse(Protocol):
    """An answer that has begun. ``boot_id`` is of whoever gives it, where it says so."""

    @property
    def boot_id(self) -> str | None: ...

    def pieces(self) -> AsyncIterator[bytes]:
        """What comes, as it comes. Raises `PeerTrouble` where it breaks off."""
        ...


class PeerTransport(Protocol):
    """What the store needs of a network. It is open while it is entered."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def resolve(self, name: ServiceName) -> frozenset[str]:
        """The addresses behind ``name``. Raises `NameTrouble`. May take any time."""
        ...

    def request(
        self, place: PeerLocation, path: str, after: tuple[str, int] = ("", 0), *, head: bool = False
    ) -> AbstractAsyncContextManager[PeerResponse]:
        """Ask over a connection of its own; raises `PeerTrouble` or `PeerRefused` on entry. May take any time.

        ``after`` is the boot that was read and how far. With ``head`` there is nothing to read.
        """
        ...


class HttpPeerResponse:
    """`PeerResponse` of a real one."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def boot_id(self) -> str | None:
        return self._response.headers.get("Poolmuster-Instance")

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.content.iter_any():
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise _translate(error) from error


class HttpPeerTransport:
    """`PeerTransport` by aiohttp."""

    def __init__(self, credentials: PeerCredentials) -> None:
        self._credentials = credentials
        self._names = SystemResolver()
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
        return await self._names.resolve(name)

    @asynccontextmanager
    async def request(
        self, place: PeerLocation, path: str, after: tuple[str, int] = ("", 0), *, head: bool = False
    ) -> AsyncIterator[HttpPeerResponse]:
        assert self._session is not None, "it is asked while it is entered"
        self._credentials.look()
        context, authorization = self._credentials.context, self._credentials.authorization
        query = {} if path == LIST_PATH else {"boot": after[0], "after": str(after[1])}
        try:
            response = await self._session.request(
                "HEAD" if head else "GET",
                URL(f"{'http' if context is None else 'https'}://{place.address}{path}").with_query(query),
                headers={} if authorization is None else {"Authorization": authorization},
                ssl=True if context is None else context,
                server_hostname=None if context is None else place.host,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._with_hint(_translate(error)) from error
        try:
            _check_status(response.status)
            yield HttpPeerResponse(response)
        finally:
            response.close()

    def _with_hint(self, error: Exception) -> Exception:
        """A handshake that is refused for our certificate looks like any connection that breaks off."""
        if isinstance(error, PeerTrouble) and error.detail == CONNECTION_LOST and self._credentials.shows_certificate:
            return PeerTrouble(
                error.reason, f"{CONNECTION_LOST} Our certificate, shown to it, has to be for clients as well."
            )
        return error


def _check_status(status: int) -> None:
    match status:
        case 200:
            return
        case 401:
            raise PeerTrouble(SourceReason.FORBIDDEN, "It does not accept our credentials (401).")
        case 403:
            raise PeerTrouble(SourceReason.FORBIDDEN, "Our credentials do not have the role 'peer' there (403).")
        case 404:
            raise bad_answer("It does not share what it lists (404): --peer-service is not set there.")
        case 503:
            raise PeerTrouble(SourceReason.UNREACHABLE, "It is stopping, or serves as much as it may (503).")
    raise bad_answer(f"It answers with status {status}.")


def _translate(error: Exception) -> Exception:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return PeerTrouble(SourceReason.UNREACHABLE, f"Its certificate is not accepted: {error.certificate_error}.")
    if isinstance(error, aiohttp.ClientConnectorSSLError | ssl.SSLError):
        return PeerTrouble(SourceReason.UNREACHABLE, "There is no speaking TLS with it.")
    if isinstance(error, TimeoutError):
        return PeerTrouble(SourceReason.TIMEOUT, "It takes no connection.")
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED:
        return PeerRefused()
    if isinstance(error, aiohttp.ClientResponseError | ValueError):
        return bad_answer("It does not speak HTTP as it should.")
    if isinstance(error, aiohttp.ClientConnectorError):
        return PeerTrouble(SourceReason.UNREACHABLE, f"It cannot be reached: {error.os_error.strerror or error}.")
    return PeerTrouble(SourceReason.UNREACHABLE, CONNECTION_LOST)
