"""A name server whose records a test changes at once, and that fails or falls silent when told to."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from enum import Enum, auto
from ipaddress import ip_address
from typing import cast

import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


class Mood(Enum):
    """What it does with a question."""

    ANSWERS = auto()
    FAILS = auto()
    SILENT = auto()


class NameServer:
    """Answers with ``records``, addresses by name, IPv4 and IPv6 alike; a name that is not there does not exist."""

    def __init__(self) -> None:
        self.records: dict[str, list[str]] = {}
        self.mood = Mood.ANSWERS
        self.asked = 0

    @contextlib.asynccontextmanager
    async def serving(self, bound: socket.socket) -> AsyncIterator[None]:
        """Answer what comes to this datagram socket."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Questions(self), sock=bound)
        try:
            yield
        finally:
            transport.close()

    def answer(self, question: bytes) -> bytes | None:
        """What is answered to one question; ``None`` is silence."""
        self.asked += 1
        try:
            asked = dns.message.from_wire(question)
        except dns.exception.DNSException:
            return None
        if self.mood is Mood.SILENT or len(asked.question) != 1:
            return None
        # Without recursion the C library takes "no such record" for a server that does not know, and asks the next.
        response = dns.message.make_response(asked, recursion_available=True)
        name, kind = asked.question[0].name, asked.question[0].rdtype
        addresses = self.records.get(name.to_text(omit_final_dot=True).lower())
        if self.mood is Mood.FAILS:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif addresses is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif wanted := [each for each in addresses if _kind(each) == kind]:
            response.answer.append(dns.rrset.from_text_list(name, 0, "IN", kind, wanted))
        return response.to_wire()


class _Questions(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # the event loop's own is none by class

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._transport is not None and (answer := self._server.answer(data)) is not None:
            self._transport.sendto(answer, addr)


def _kind(address: str) -> dns.rdatatype.RdataType:
    return dns.rdatatype.A if ip_address(address).version == 4 else dns.rdatatype.AAAA
