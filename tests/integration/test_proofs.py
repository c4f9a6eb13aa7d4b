"""Client certificates and service accounts on the real program: let in, refused with a reason in the log, rotated."""

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from poolmuster.auth.credentials_file import credentials_line, digest_of, new_token
from tests.support.guarded import GuardedProgram, guarded
from tests.support.issuer import ISSUER, Issuer
from tests.support.pki import DAY, Authority, Issued, from_now, replace_file
from tests.support.principals import OPEN, READ

pytestmark = pytest.mark.integration

REVOKED_WITHIN_S = 2.0
"""What is promised. On a busy machine the tests allow three times as much."""

RELAY, READER, STRANGER = (f"spiffe://prod.example/{name}" for name in ("relay", "reader", "stranger"))
LINES = f"""
relay = {{uri = "{RELAY}", roles = ["register"], clusters = ["eu-*"]}}
reader = {{uri = "{READER}", roles = ["read"]}}
by-name = {{dns = "reader.example", roles = ["read"]}}
account = {{issuer = "{ISSUER}", service_account = "inference/relay", roles = ["read", "register"], clusters = ["*"]}}
"""


class Asker:
    """One client: its sessions make a new connection each, unless `kept`."""

    def __init__(self, served: GuardedProgram, trust: Authority, shown: Issued | None, folder: Path) -> None:
        self.url = served.url
        self.context = ssl.create_default_context(cadata=trust.pem.decode())
        if shown is not None:
            pair = shown.write(folder, f"client-{id(self)}")
            self.context.load_cert_chain(pair.cert, pair.key)

    @contextlib.asynccontextmanager
    async def kept(self, headers: dict[str, str] | None = None) -> AsyncIterator[aiohttp.ClientSession]:
        connector = aiohttp.TCPConnector(ssl=self.context)
        async with aiohttp.ClientSession(self.url, connector=connector, headers=headers) as session:
            yield session

    async def ask(self, method: str = "GET", path: str = "/pools", **more: Any) -> int:
        """A status; 0 where the connection came to nothing."""
        async with self.kept() as session:
            try:
                return await status_of(session, method, path, **more)
            except aiohttp.ClientError:
                return 0


async def status_of(session: aiohttp.ClientSession, method: str = "GET", path: str = "/pools", **more: Any) -> int:
    async with session.request(method, path, **more) as answer:
        return answer.status


def document(cluster_id: str, name: str = "a") -> dict[str, str]:
    return {"cluster_id": cluster_id, "namespace": "n", "dgd_name": name}


class World:
    """A service with a certificate, and the authorities and issuers that it knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers, self.clients = Authority("Servers"), Authority("Clients")
        self.issuer = Issuer()
        self.bundle = folder / "clients.pem"
        self.keys = folder / "keys.json"
        replace_file(self.bundle, self.clients.pem)
        replace_file(self.keys, self.issuer.jwks())
        flags = ("--tls-client-ca", str(self.bundle), "--auth-oidc", f"https://issuer.example={self.keys}")
        self.served = guarded(folder, *flags, authority=self.servers, content=LINES)
        self.program = self.served.program

    def asker(self, shown: Issued | None = None) -> Asker:
        return Asker(self.served, self.servers, shown, self.folder)

    def token(self, **changes: Any) -> dict[str, str]:
        return {"authorization": f"Bearer {self.issuer.token(time.time_ns() // 1_000_000, **changes)}"}

    async def told(self, words: str) -> None:
        await self.program.wait_line(words, 3 * REVOKED_WITHIN_S)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    async with world.program:
        yield world


async def test_a_certificate_is_who_its_names_say(world: World) -> None:
    relay = world.asker(world.clients.client(uris=[RELAY]))
    assert await relay.ask("POST", json=document("eu-1")) == 201
    assert await relay.ask("POST", json=document("us-1")) == 403
    assert await relay.ask() == 403
    assert await relay.ask("DELETE", "/pools/eu-1/n/a") == 204
    for reader in (world.clients.client(uris=[READER]), world.clients.client("reader.example")):
        assert await world.asker(reader).ask() == 200
        assert await world.asker(reader).ask("POST", json=document("eu-1")) == 403
    intermediate = world.clients.intermediate()
    assert await world.asker(intermediate.client(uris=[READER])).ask() == 200
    assert await world.asker().ask() == 401
    assert await world.asker().ask(path="/health/ready") == 200
    assert await relay.ask(headers={"authorization": "Bearer wrong"}) == 401, "what is said aloud counts"


async def test_every_path_by_certificate_and_by_service_account(world: World) -> None:
    relay = world.asker(world.clients.client(uris=[RELAY]))
    assert await relay.ask("POST", json=document("eu-1")) == 201
    reader, nobody = world.asker(world.clients.client(uris=[READER])), world.asker()
    read = ["/pools/eu-1/n/a" if path == "/pools/c/n/a" else path for path in READ]
    for path in (*read, *OPEN):
        is_open = path in OPEN
        assert await reader.ask(path=path) == 200, path
        assert await nobody.ask(path=path, headers=world.token()) == 200, path
        assert await relay.ask(path=path) == (200 if is_open else 403), path
        assert await nobody.ask(path=path) == (200 if is_open else 401), path
        assert await nobody.ask(path=path, headers=world.token(aud="another")) == (200 if is_open else 401), path


@pytest.mark.parametrize(
    ("make", "status", "told"),
    [
        (lambda world: world.clients.client(uris=[STRANGER]), 401, "no line is for a certificate for .*stranger"),
        (lambda world: world.clients.client("relay"), 401, "no line is for a certificate for relay"),
        (lambda world: world.clients.client(), 401, "a certificate without a URI or DNS name"),
        (lambda world: Authority("Others").client(uris=[READER]), 0, "unknown_authority"),
        (
            lambda world: world.clients.client(uris=[READER], not_before=from_now(-2 * DAY), not_after=from_now(-DAY)),
            0,
            "expired_certificate",
        ),
        (
            lambda world: world.clients.client(uris=[READER], not_before=from_now(DAY), not_after=from_now(2 * DAY)),
            0,
            "not_yet_valid",
        ),
        (lambda world: world.clients.server("reader.example"), 0, "bad_certificate"),
    ],
    ids=["unmapped", "another kind of name", "no name", "unknown CA", "expired", "not yet valid", "a server's"],
)
async def test_a_bad_certificate_is_refused_and_the_log_says_why(
    world: World, make: Callable[[World], Issued], status: int, told: str
) -> None:
    assert await world.asker(make(world)).ask() == status
    await world.told(told)


async def test_plain_http_on_the_tls_port_is_refused_and_the_log_says_why(world: World) -> None:
    with socket.create_connection(("127.0.0.1", int(world.served.url.rpartition(":")[2])), timeout=5) as plain:
        plain.sendall(b"GET /pools HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := plain.recv(4096):
                answer += piece
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"This port speaks HTTPS" in answer
    await world.told("no_tls")


async def test_a_service_account_is_who_its_token_says(world: World) -> None:
    asker = world.asker()
    assert await asker.ask(headers=world.token()) == 200
    assert await asker.ask("POST", json=document("anywhere"), headers=world.token()) == 201


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": 1_000_000_000}, "expired"),
        ({"nbf": 4_000_000_000}, "not_yet_valid"),
        ({"aud": ["another"]}, "wrong_audience"),
        ({"iss": "https://other.example"}, "unknown_issuer"),
        ({"sub": "system:serviceaccount:inference:other"}, "unknown_account"),
        ({"sub": "somebody"}, "unknown_account"),
    ],
)
async def test_a_bad_token_is_refused_and_the_log_says_why(world: World, changes: dict[str, Any], reason: str) -> None:
    async with world.asker().kept() as session, session.get("/pools", headers=world.token(**changes)) as answer:
        assert answer.status == 401
        told = str(answer.headers) + await answer.text()
    assert reason not in told
    await world.told(f'"reason": "{reason}"')


async def test_unsigned_and_wrongly_signed_tokens_are_refused_and_the_log_says_why(world: World) -> None:
    now_ms = time.time_ns() // 1_000_000
    claims = world.issuer.claims(now_ms)
    good = world.issuer.token(now_ms)
    unsigned = world.issuer.compact(world.issuer.header(alg="none"), claims).rpartition(".")[0] + "."
    stranger = Issuer()
    stranger.add("elsewhere", number=1)
    asker = world.asker()
    for token, reason in (
        (unsigned, "algorithm"),
        (world.issuer.compact(world.issuer.header(alg="HS256"), claims), "algorithm"),
        (world.issuer.compact(world.issuer.header(kid="none-of-them"), claims), "unknown_key"),
        (stranger.compact(world.issuer.header(), claims), "bad_signature"),
        (good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB"), "bad_signature"),
    ):
        assert await asker.ask(headers={"authorization": f"Bearer {token}"}) == 401, reason
        await world.told(f'"reason": "({reason})"')
    assert await asker.ask(headers={"authorization": f"Bearer {good}"}) == 200


async def test_keys_that_cannot_be_fetched_let_nobody_in_and_the_log_says_why(tmp_path: Path) -> None:
    issuer = Issuer()
    flags = ("--auth-oidc", "https://issuer.example=http://127.0.0.1:9/keys")
    served = guarded(tmp_path, *flags, content=LINES)
    async with served.program, aiohttp.ClientSession(served.url) as session:
        token = issuer.token(time.time_ns() // 1_000_000)
        assert await status_of(session, headers={"authorization": f"Bearer {token}"}) == 401
        await served.program.wait_line("issuer keys not readable")
        await served.program.wait_line('"reason": "no_keys"')


async def hold_load(stop: asyncio.Event, failed: list[str], ask: Callable[[], Awaitable[int]]) -> int:
    """Ask until told to stop. Returns how often."""
    count = 0
    while not stop.is_set():
        status = await ask()
        count += 1
        if status != 200:
            failed.append(str(status))
    return count


class Load:
    """Clients that must not fail: on kept connections and on new ones."""

    def __init__(self, *askers: tuple[Asker, dict[str, str] | None]) -> None:
        self._askers = askers
        self._stop = asyncio.Event()
        self.failed: list[str] = []
        self.count = 0

    async def __aenter__(self) -> Self:
        self._stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[int]] = []
        for asker, headers in self._askers:
            session = await self._stack.enter_async_context(asker.kept(headers))

            async def anew(asker: Asker = asker, headers: dict[str, str] | None = headers) -> int:
                return await asker.ask(headers=headers)

            async def kept(session: aiohttp.ClientSession = session) -> int:
                return await status_of(session)

            self._tasks += [asyncio.create_task(hold_load(self._stop, self.failed, each)) for each in (kept, anew)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        self.count = sum(await asyncio.gather(*self._tasks))
        await self._stack.aclose()


async def until_refused(
    world: World, asker: Asker, headers: dict[str, str] | None, revoke: Callable[[], object]
) -> None:
    """Revoke while a watch and a kept connection are open: both must be refused in time."""
    async with (
        asker.kept(headers) as session,
        session.get("/pools/watch", headers={"accept": "application/x-ndjson"}) as watch,
    ):
        assert watch.status == 200
        assert await status_of(session) == 200
        await asyncio.sleep(0.5)
        revoke()
        begun_s = time.monotonic()
        async with asyncio.timeout(3 * REVOKED_WITHIN_S):
            while await status_of(session) != 401:
                await asyncio.sleep(0.02)
            lines = [line async for line in watch.content]
        assert time.monotonic() - begun_s < 3 * REVOKED_WITHIN_S
        assert json.loads(lines[-1])["reason"] == "unauthorized"


async def test_authorities_rotate_under_load(world: World) -> None:
    """Both are trusted for a while; then whoever is vouched for by the old one alone is refused, and nobody else."""
    new = Authority("New clients")
    before, after = world.asker(world.clients.client(uris=[READER])), world.asker(new.client(uris=[READER]))
    replace_file(world.bundle, world.clients.pem + new.pem)
    await world.told("file reloaded")
    async with Load((after, None)) as load:
        await until_refused(world, before, None, lambda: replace_file(world.bundle, new.pem))
        assert await before.ask() == 0
    assert load.failed == []
    assert load.count > 20


async def test_the_servers_certificate_rotates_under_load(world: World) -> None:
    reader = world.asker(world.clients.client(uris=[READER]))
    port = int(world.served.url.rpartition(":")[2])

    def served_certificate() -> bytes:
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))

    async with Load((reader, None)) as load:
        for _ in range(2):
            fresh = world.servers.server("localhost", "127.0.0.1")
            fresh.write(world.folder, "server")
            async with asyncio.timeout(3 * REVOKED_WITHIN_S):
                while await asyncio.to_thread(served_certificate) != fresh.der:
                    await asyncio.sleep(0.05)
        replace_file(world.folder / "server.key", b"no key")
        await world.told("file not reloaded")
        await asyncio.sleep(0.5)
    assert load.failed == []
    assert load.count > 20


async def test_signing_keys_rotate_under_load(world: World) -> None:
    old = world.token()
    world.issuer.add("second", number=1)
    replace_file(world.keys, world.issuer.jwks())
    await world.told("issuer keys changed.*second|second.*issuer keys changed")
    async with Load((world.asker(), world.token())) as load:
        world.issuer.withdraw("first")
        await until_refused(world, world.asker(), old, lambda: replace_file(world.keys, world.issuer.jwks()))
    assert load.failed == []
    assert load.count > 20


async def test_a_name_that_is_taken_out_of_the_file_is_refused(world: World) -> None:
    gone = world.asker(world.clients.client("reader.example"))
    stays = world.asker(world.clients.client(uris=[READER]))
    without = "\n".join(line for line in LINES.splitlines() if "by-name" not in line)
    async with Load((stays, None)) as load:
        await until_refused(world, gone, None, lambda: world.served.write(without))
    assert load.failed == []


async def test_tokens_and_certificates_at_one_service(world: World) -> None:
    token = new_token()
    line = credentials_line("by-token", sha256=digest_of(token.encode()).hex(), roles=("read",))
    world.served.write(f"{LINES}\n{line}\n")
    await world.told("file reloaded")
    assert await world.asker().ask(headers={"authorization": f"Bearer {token}"}) == 200
    relay = world.asker(world.clients.client(uris=[RELAY]))
    assert await relay.ask(headers={"authorization": f"Bearer {token}"}) == 200, (
        "the token reads, the certificate may not"
    )
