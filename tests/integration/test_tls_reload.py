"""Certificates and authorities replaced while hundreds of requests are in flight."""

import asyncio
import ssl
from pathlib import Path
from typing import Self

import aiohttp
import pytest

from tests.support.pki import Authority, replace_file
from tests.support.tls_server import Files, Serving, client_context, run_on, serving

pytestmark = pytest.mark.integration

CONNECTIONS = 40
ROUNDS = 6


async def served(here: Serving) -> bytes | None:
    """The certificate that a new connection gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=context)
    der: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await reader.readline()
    writer.transport.abort()
    return der


class Load:
    """Requests on kept connections and on new ones, without a pause. Any that fails ends it."""

    def __init__(self, here: Serving, context: ssl.SSLContext) -> None:
        self.answered = 0
        self._url = f"https://localhost:{here.port}/large?20000"
        self._context = context
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._kept = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._context, limit=CONNECTIONS))
        self._fresh = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._context, force_close=True))
        sessions = [self._kept] * CONNECTIONS + [self._fresh] * 4
        self._tasks = [asyncio.create_task(self._ask(session)) for session in sessions]
        await self.more()
        return self

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        while True:
            async with session.get(self._url) as answer:
                assert answer.status == 200
                assert len(await answer.read()) == 20_000
                self.answered += 1

    async def more(self) -> None:
        """Wait for some hundreds of answers."""
        until = self.answered + 300
        while self.answered < until:
            failed = [task for task in self._tasks if task.done()]
            for task in failed:
                task.result()
            await asyncio.sleep(0.005)

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._kept.close()
        await self._fresh.close()
        assert all(isinstance(result, asyncio.CancelledError) for result in results), results


def test_a_new_certificate_is_served_at_once_and_no_request_fails(loop_name: str, tmp_path: Path) -> None:
    authority = Authority()
    files = Files(tmp_path, authority)

    async def main() -> None:
        async with serving(files.tls) as here, Load(here, client_context(authority)) as load:
            for _ in range(ROUNDS):
                issued = authority.server("localhost")
                assert await served(here) != issued.der
                files.serve(issued)
                assert files.refresh()
                assert await served(here) == issued.der
                await load.more()
            assert here.failures == {}

    run_on(loop_name, main)


def test_a_certificate_that_cannot_be_used_leaves_the_last_good_one(loop_name: str, tmp_path: Path) -> None:
    authority = Authority()
    files = Files(tmp_path, authority)

    async def main() -> None:
        async with serving(files.tls) as here, Load(here, client_context(authority)) as load:
            before = await served(here)
            for broken in (b"no certificate", authority.server("localhost").cert_pem):
                replace_file(Path(files.cert), broken)
                assert files.refresh()
                assert files.cert in str(files.tls.pair.problem)
                assert await served(here) == before
                await load.more()

    run_on(loop_name, main)


def test_authorities_come_and_go_and_no_request_of_a_trusted_one_fails(loop_name: str, tmp_path: Path) -> None:
    ours, other = Authority("Ours"), Authority("Other")
    files = Files(tmp_path, ours, client_ca=ours.pem)
    (tmp_path / "other").mkdir()
    strangers = client_context(ours, other.client("b"), tmp_path / "other")

    async def known(here: Serving, context: ssl.SSLContext) -> bool:
        try:
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
                session.get(f"https://localhost:{here.port}/") as answer,
            ):
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def main() -> None:
        async with serving(files.tls) as here, Load(here, client_context(ours, ours.client("a"), tmp_path)) as load:
            kept = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=strangers))
            for trusted in (ours.pem + other.pem, ours.pem, other.pem + ours.pem):
                files.trust(trusted)
                assert files.refresh()
                assert await known(here, strangers) is (other.pem in trusted)
                # A connection that was let in goes on: whoever judges its requests learns what it proved.
                async with kept.get(f"https://localhost:{here.port}/") as answer:
                    assert answer.status == 200
                await load.more()
            await kept.close()
            assert set(here.failures) == {"unknown_authority"}
        by_whom = {proof.trust_anchor for proof in here.certificates if proof is not None}
        assert by_whom == {ours.der, other.der}
        assert None not in here.certificates

    run_on(loop_name, main)
