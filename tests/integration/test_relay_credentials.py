"""A relay that shows a token and a certificate: rotated while it runs, refused, and never shown."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from tests.support.model_server import ModelServer, model_server
from tests.support.pki import Authority, replace_file
from tests.support.ports import free_port
from tests.support.process import Program, poolmuster
from tests.support.tls_service import TlsService, server_context, serving

pytestmark = pytest.mark.integration

SOON_S = 15.0
TOKENS = ("sesame-first", "sesame-second")
TAKEN = {"lease": {"duration_ms": 3_000, "heartbeat_interval_ms": 500, "ends_at_ms": 1}, "routers": []}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ModelServer]:
    async with model_server(tmp_path) as found:
        yield found


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[TlsService]:
    servers, clients = Authority("servers"), Authority("clients")
    servers.write(tmp_path)
    clients.client("relay").write(tmp_path, "client")
    context = server_context(tmp_path, servers.server("127.0.0.1"), clients=clients.pem)
    async with serving(context) as found:
        found.document = TAKEN
        yield found


def relay_of(folder: Path, server: ModelServer, discovery: str, port: int, **files: str) -> Program:
    replace_file(folder / "token", TOKENS[0].encode() + b"\n")
    return poolmuster(
        "relay",
        *("--frontend", server.url, "--discovery", discovery, "--cluster-id", "c", "--name", "n"),
        *("--listen", f"127.0.0.1:{port}", "--log-level", "debug", "--probe-interval-secs", "0.2"),
        *(word for flag, path in files.items() for word in (f"--{flag.replace('_', '-')}", str(folder / path))),
        folder=folder,
        ready_url=f"http://127.0.0.1:{port}/health/live",
    )


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


def of_process(pid: int) -> list[str]:
    """What every user of the machine, or its own user, can read about a process."""
    return [Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace") for name in ("cmdline", "environ")]


async def until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < ends, "it did not come about"
        await asyncio.sleep(0.02)


async def until_health(port: int, status: int, text: str = "") -> None:
    async with asyncio.timeout(SOON_S):
        while not ((found := await get(port, "/health/ready"))[0] == status and text in found[1]):
            await asyncio.sleep(0.05)


async def test_its_credentials_rotate_are_refused_and_never_show(
    tmp_path: Path, server: ModelServer, service: TlsService
) -> None:
    port = free_port()
    files = {"token_file": "token", "ca_cert": "ca.pem", "client_cert": "client.pem", "client_key": "client.key"}
    async with relay_of(tmp_path, server, service.url, port, **files) as program:
        await until_health(port, 200)
        assert service.shown[-1].authorization == f"Bearer {TOKENS[0]}"
        assert service.shown[-1].certificate is not None
        service.status = 401
        await until_health(port, 503, "discovery refuses it: 401: It says no.")
        replace_file(tmp_path / "token", TOKENS[1].encode())
        await until(lambda: service.shown[-1].authorization == f"Bearer {TOKENS[1]}")
        service.status = 200
        await until_health(port, 200)
        replace_file(tmp_path / "token", b"sesame broken")
        async with asyncio.timeout(SOON_S):
            while not (problems := json.loads((await get(port, "/status"))[1])["pools"][0]["file_problems"]):
                await asyncio.sleep(0.05)
        assert "holds no token" in problems[0]
        await until_health(port, 200)
        assert service.shown[-1].authorization == f"Bearer {TOKENS[1]}"
        shown = [(await get(port, path))[1] for path in ("/status", "/metrics", "/health/ready")]
        shown += [*of_process(program.pid), program.stdout, program.stderr]
    text = "\n".join(shown)
    assert program.stderr.count("registration refused") == 1
    assert program.stderr.count("credentials not reloaded") == 1
    assert "sesame" not in text
    assert "PRIVATE KEY" not in text


async def test_what_is_wrong_with_tls_is_told_without_a_traceback(
    tmp_path: Path, server: ModelServer, service: TlsService
) -> None:
    port = free_port()
    Authority("strangers").write(tmp_path)
    async with relay_of(tmp_path, server, service.url, port, token_file="token", ca_cert="ca.pem") as program:
        await until_health(port, 503, "its certificate is by an authority that is not trusted here")
    assert "Traceback" not in program.stderr
    assert service.shown == []


async def test_a_file_that_is_missing_at_the_start_stops_it(tmp_path: Path, server: ModelServer) -> None:
    program = relay_of(tmp_path, server, "https://127.0.0.1:1", free_port(), token_file="none")
    with pytest.raises(AssertionError):
        await program.start()
    await program.reap()
    (line,) = program.stderr.splitlines()
    assert "'--token-file'" in line
    assert "cannot be read: No such file or directory" in line
