"""A client over TLS that decides what goes into which packet."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

from tests.support.tls_server import Serving

GET = b"GET /%b HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"GET /%b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


class ByHand:
    """A client over a blocking socket that decides what goes into which packet."""

    def __init__(self, port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost", session=session)

    def shake_hands(self, *, flush_last: bool = True) -> None:
        """Without ``flush_last`` the client's last flight waits, to go out with what is written next."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self._receive()
            else:
                break
        if flush_last:
            self.flush()

    def flush(self) -> None:
        if data := self._outgoing.read():
            self.socket.sendall(data)

    def say(self, data: bytes) -> None:
        self.tls.write(data)
        self.flush()

    def read(self) -> bytes:
        """Some bytes, or none when the server said that it closes. Raises where it just ended."""
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                self._receive()
            except ssl.SSLZeroReturnError:
                return b""

    def read_all(self) -> bytes:
        parts = []
        while part := self.read():
            parts.append(part)
        return b"".join(parts)

    def ask(self, path: bytes = b"") -> bytes:
        self.say(GET % path)
        return self.read()

    def shake_hands_and_ask(self) -> bytes:
        self.shake_hands()
        return self.ask()

    def close(self) -> None:
        """Close in good order: say so, and wait for the server's word."""
        with contextlib.suppress(ssl.SSLError, OSError):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.unwrap()
            self.flush()
            self._receive()
        self.socket.close()

    def _receive(self) -> None:
        data = self.socket.recv(65536)
        self._incoming.write(data) if data else self._incoming.write_eof()


async def by_hand(here: Serving, context: ssl.SSLContext, use: Callable[[ByHand], Any], *, shake: bool = True) -> Any:
    def work() -> Any:
        client = ByHand(here.port, context)
        try:
            if shake:
                client.shake_hands()
            return use(client)
        finally:
            client.socket.close()

    return await asyncio.to_thread(work)
