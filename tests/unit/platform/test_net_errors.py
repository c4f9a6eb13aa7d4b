"""Each way in which a call fails has its kind, by real failures of aiohttp where one can be had at once."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from yarl import URL

from poolmuster.platform.net_errors import NetFailure, failure_of, reason_of
from tests.support.ports import free_port

KEY = aiohttp.client_reqrep.ConnectionKey("h", 1, False, True, None, None, None)


def connector(error: OSError) -> aiohttp.ClientConnectorError:
    return aiohttp.ClientConnectorError(KEY, error)


def verification() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "failed")
    error.verify_code, error.verify_message = 18, "self-signed certificate"
    return error


INFO = aiohttp.RequestInfo(URL("http://u:secret@h"), "GET", None, URL("http://h"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "failure", "words"),
    [
        (aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(-2, "not known")), NetFailure.DNS, "not known"),
        (connector(OSError(errno.ECONNREFUSED, "x")), NetFailure.REFUSED, "Connection refused"),
        (connector(OSError(errno.EHOSTUNREACH, "x")), NetFailure.NO_CONNECTION, "No route to host"),
        (connector(OSError()), NetFailure.NO_CONNECTION, "no connection"),
        (aiohttp.ConnectionTimeoutError(), NetFailure.TIMEOUT, "does not answer in time"),
        (TimeoutError(), NetFailure.TIMEOUT, "does not answer in time"),
        (
            aiohttp.ClientConnectorCertificateError(KEY, verification()),
            NetFailure.CERTIFICATE,
            "an authority that is not trusted here (self-signed certificate)",
        ),
        (aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "x")), NetFailure.TLS, "TLS failed (x)"),
        (connector(ConnectionResetError()), NetFailure.CUT, "was cut"),
        (connector(OSError(errno.EPIPE, "x")), NetFailure.CUT, "was cut"),
        (aiohttp.ServerDisconnectedError(), NetFailure.CUT, "was cut"),
        (aiohttp.ClientPayloadError(), NetFailure.CUT, "was cut"),
        (aiohttp.ClientHttpProxyError(INFO, (), status=407), NetFailure.PROTOCOL, "the proxy answered 407"),
        (aiohttp.ClientResponseError(INFO, (), message="Bad status line"), NetFailure.PROTOCOL, "Bad status line"),
        (aiohttp.InvalidURL("http://u:secret@h"), NetFailure.OTHER, "the URL of the proxy"),
        (ValueError("no host"), NetFailure.OTHER, "no host"),
    ],
)
def test_each_error_has_its_kind_and_words_without_secrets(error: Exception, failure: NetFailure, words: str) -> None:
    assert failure_of(error) is failure
    assert words in reason_of(error)
    assert "secret" not in reason_of(error, "http://h")


def test_a_cut_hints_at_what_the_url_may_lack() -> None:
    error = aiohttp.ServerDisconnectedError()
    assert "is it https?" in reason_of(error, "http://h")
    assert "client certificate" in reason_of(error, "https://h")


async def _cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.close()


async def _no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail\r\n")
    await reader.read(1)
    writer.close()


async def _tls_alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"\x15\x03\x01\x00\x02\x02\x16")
    writer.close()


@pytest.mark.parametrize(
    ("handler", "scheme", "failure", "words"),
    [
        (_cut, "http", NetFailure.CUT, "was cut"),
        (_no_http, "http", NetFailure.PROTOCOL, ""),
        (_no_http, "https", NetFailure.TLS, "does not speak TLS"),
        (_tls_alert, "http", NetFailure.PROTOCOL, "speaks TLS there"),
    ],
)
async def test_servers_that_fail_a_call(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    scheme: str,
    failure: NetFailure,
    words: str,
) -> None:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with aiohttp.ClientSession() as session, server:
        with pytest.raises(aiohttp.ClientError) as caught:
            await session.get(f"{scheme}://127.0.0.1:{port}/")
    assert failure_of(caught.value) is failure
    assert words in reason_of(caught.value)


async def test_a_port_without_a_listener_refuses() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError) as caught:
            await session.get(f"http://127.0.0.1:{free_port()}/")
    assert failure_of(caught.value) is NetFailure.REFUSED
