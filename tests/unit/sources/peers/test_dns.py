"""Names to addresses: each family by itself, and a resolver that hangs holds only so many threads."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from poolmuster.sources.peers.dns import ADDRESSES_LIMIT, LOOKUPS_LIMIT, ServiceName, SystemResolver
from poolmuster.sources.peers.errors import ResolverError

NAME = ServiceName("peers.test", 81)


class Resolver:
    """Stands in for the system's: answers by family, with addresses or an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.answers = {socket.AF_INET: answers.get("v4", []), socket.AF_INET6: answers.get("v6", [])}
        self.asked: list[str] = []
        self.go_on = threading.Event()
        self.go_on.set()
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str, port: int, family: socket.AddressFamily, kind: int) -> list[Any]:
        self.asked.append(f"{host} {family.name}")
        assert self.go_on.wait(10)
        answer = self.answers[family]
        if isinstance(answer, Exception):
            raise answer
        return [(family, kind, 6, "", (address, port)) for address in answer]


async def test_both_families_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, v4=["10.0.0.1", "10.0.0.2"], v6=["2001:db8::1"])
    assert await SystemResolver().resolve(NAME) == {"10.0.0.1:81", "10.0.0.2:81", "[2001:db8::1]:81"}
    assert sorted(resolver.asked) == ["peers.test AF_INET", "peers.test AF_INET6"]


@pytest.mark.parametrize("number", [socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY])
async def test_no_records_are_no_addresses(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    nothing = socket.gaierror(number, "nothing")
    Resolver(monkeypatch, v4=nothing, v6=nothing)
    assert await SystemResolver().resolve(NAME) == frozenset()
    Resolver(monkeypatch, v4=["10.0.0.1"], v6=nothing)
    assert await SystemResolver().resolve(NAME) == {"10.0.0.1:81"}


@pytest.mark.parametrize(
    "error", [socket.gaierror(socket.EAI_AGAIN, "try again"), OSError("no sockets"), UnicodeError("label too long")]
)
async def test_half_an_answer_is_none(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    Resolver(monkeypatch, v4=["10.0.0.1"], v6=error)
    with pytest.raises(ResolverError, match=r"peers\.test"):
        await SystemResolver().resolve(NAME)


async def test_too_many_addresses_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, v4=[f"10.0.{n // 256}.{n % 256}" for n in range(ADDRESSES_LIMIT + 1)])
    with pytest.raises(ResolverError, match="addresses"):
        await SystemResolver().resolve(NAME)


async def test_while_questions_hang_only_so_many_are_asked_and_then_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, v4=["10.0.0.1"])
    resolver.go_on.clear()
    names = SystemResolver()
    hanging = [asyncio.create_task(names.resolve(NAME)) for _ in range(LOOKUPS_LIMIT)]
    await asyncio.sleep(0)
    with pytest.raises(ResolverError, match="does not answer"):
        await names.resolve(NAME)
    other = asyncio.create_task(names.resolve(ServiceName("other.test", 81)))
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    with pytest.raises(ResolverError):
        await names.resolve(NAME)
    resolver.go_on.set()
    assert await other == {"10.0.0.1:81"}
    async with asyncio.timeout(5):
        while True:
            try:
                assert await names.resolve(NAME) == {"10.0.0.1:81"}
                break
            except ResolverError:
                await asyncio.sleep(0.01)


async def test_a_literal_is_its_own_address() -> None:
    assert await SystemResolver().resolve(ServiceName("127.0.0.2", 81)) == {"127.0.0.2:81"}
    assert await SystemResolver().resolve(ServiceName("::1", 81)) == {"[::1]:81"}
