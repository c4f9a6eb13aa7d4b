"""Credentials on real programs: who is let in, over TLS and not, rotation under load, and no secret anywhere."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from poolmuster.auth.credentials_file import credentials_line, digest_of, new_token
from poolmuster.model.auth import Role
from tests.support.guarded import GuardedProgram, guarded
from tests.support.pki import Authority, replace_file
from tests.support.principals import CLUSTER, MALFORMED, OPEN, READ, TOKENS, bearer, lines

pytestmark = pytest.mark.integration

REVOKED_WITHIN_S = 2.0
"""What is promised. On a busy machine the tests allow three times as much."""

LOAD_S = 2.0


@pytest.fixture(params=["http", "https"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[GuardedProgram]:
    authority = Authority() if request.param == "https" else None
    found = guarded(tmp_path, authority=authority)
    async with found.program:
        yield found


@contextlib.asynccontextmanager
async def session_of(
    served: GuardedProgram, headers: dict[str, str] | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of its own, with a connection of its own."""
    connector = aiohttp.TCPConnector(ssl=served.trust if served.trust is not None else True)
    async with aiohttp.ClientSession(served.url, connector=connector, headers=headers) as session:
        yield session


def registration(name: str, cluster_id: str = CLUSTER) -> dict[str, Any]:
    return {"cluster_id": cluster_id, "namespace": "n", "dgd_name": name}


async def status_of(session: aiohttp.ClientSession, method: str, path: str, **more: Any) -> int:
    async with session.request(method, path, **more) as answer:
        return answer.status


async def test_every_path_by_every_role(served: GuardedProgram) -> None:
    async with session_of(served) as session:
        for role in Role:
            may = {"read": role in (Role.READ, Role.ADMIN), "register": role in (Role.REGISTER, Role.ADMIN)}
            sent = await status_of(session, "POST", "/pools", json=registration("a"), headers=bearer(role))
            assert (sent in (200, 201)) is may["register"], role
            for path in READ:
                if path == "/pools/c/n/a" and role is Role.READ:
                    continue  # nobody has registered it yet
                found = await status_of(session, "GET", path, headers=bearer(role))
                assert found == (200 if may["read"] else 403), (role, path)
            left = await status_of(session, "DELETE", "/pools/c/n/a", headers=bearer(role))
            assert left == (204 if may["register"] else 403)
        for header in (None, *MALFORMED.values()):
            headers = {} if header is None else {"authorization": header.strip()}
            for path in READ:
                assert await status_of(session, "GET", path, headers=headers) == 401, (header, path)
            for path in OPEN:
                assert await status_of(session, "GET", path, headers=headers) == 200, (header, path)
        two = [("Authorization", f"Bearer {TOKENS[Role.ADMIN]}"), ("Authorization", f"Bearer {TOKENS[Role.READ]}")]
        assert await status_of(session, "GET", "/pools", headers=two) == 401
        assert await status_of(session, "GET", "/pools", headers=[two[0], two[0]]) == 401
    async with aiohttp.ClientSession(served.health_url) as session:
        for path, status in (
            ("/health/live", 200),
            ("/health/ready", 200),
            ("/metrics", 200),
            ("/pools", 404),
            ("/", 404),
        ):
            assert await status_of(session, "GET", path) == status


async def raw(served: GuardedProgram, content: bytes) -> bytes:
    """What comes back for just these bytes, until the service closes."""
    host, _, port = served.url.rpartition("//")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=served.trust)
    writer.write(content)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


async def test_requests_on_one_connection_are_each_judged_by_what_they_bear(served: GuardedProgram) -> None:
    """Pipelined and kept: neither good credentials before nor bad ones help, or harm, what follows."""

    def asking(*headers: str) -> bytes:
        return "\r\n".join(["GET /pools HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()

    read, other = (f"Authorization: Bearer {TOKENS[role]}" for role in (Role.READ, Role.INFER))
    requests = [
        (asking(read), 200),
        (asking(), 401),
        (asking(other), 403),
        (asking(read.replace("Authorization", "aUTHORIZATION").replace("Bearer", "bearer")), 200),
        (asking(read, read), 401),
        (asking(read, "Authorization:"), 401),
        (asking("X-Authorization: " + read.partition(": ")[2]), 401),
        (asking("Proxy-Authorization: " + read.partition(": ")[2]), 401),
        (asking("Cookie: " + read), 401),
        (asking("Forwarded: for=127.0.0.1", "X-Forwarded-Client-Cert: URI=spiffe://x", "X-Remote-User: admin"), 401),
        (asking(read, "Connection: close"), 200),
    ]
    answer = await raw(served, b"".join(content for content, _ in requests))
    assert statuses(answer) == [status for _, status in requests]


OTHER_CLUSTERS = (
    "/pools/%64/n/a",
    "/pools/c/../d/n/a",
    "/pools/c%2F..%2Fd/n/a",
    "/pools/./d/n/a",
    "//pools/d/n/a",
    "/pools//d/n/a",
    "/pools/d%00/n/a",
    "/pools/%C0%A4/n/a",
    "/pools/D/n/a",
    "/pools/d/n/a;c",
    "/pools/d/n/a#/pools/c/n/a",
    "/pools/d/n/a?cluster_id=c",
    "http://localhost/pools/d/n/a",
    "http://c/pools/d/n/a",
)


async def test_no_spelling_of_a_target_leads_to_another_cluster(served: GuardedProgram) -> None:
    async with session_of(served) as session:
        for cluster_id in ("c", "d"):
            document = registration("a", cluster_id)
            assert await status_of(session, "POST", "/pools", json=document, headers=bearer(Role.ADMIN)) == 201
        for target in OTHER_CLUSTERS:
            head = f"DELETE {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKENS[Role.REGISTER]}"
            answer = await raw(served, f"{head}\r\nConnection: close\r\n\r\n".encode())
            assert statuses(answer)[0] in (400, 403, 404), target
        async with session.get("/pools", headers=bearer(Role.READ)) as listed:
            assert [pool["cluster_id"] for pool in (await listed.json())["pools"]] == ["c", "d"]


def swap_links(path: Path, content: bytes) -> None:
    """As Kubernetes updates a volume: another folder, and a link to it that is renamed over the last."""
    folder = path.parent / f"..{time.monotonic_ns()}"
    folder.mkdir()
    (folder / path.name).write_bytes(content)
    link = path.parent / "..tmp"
    link.symlink_to(folder.name)
    link.rename(path.parent / "..data")
    if not path.is_symlink():
        replaced = path.with_name("..replaced")
        replaced.symlink_to(f"..data/{path.name}")
        replaced.rename(path)


def replace(path: Path, content: bytes) -> None:
    """As everybody should."""
    replace_file(path, content)


def write_slowly(path: Path, content: bytes) -> None:
    """In place, in two halves, as an editor or a copy may do it."""
    with path.open("wb", buffering=0) as file:
        half = len(content) // 2
        file.write(content[:half])
        time.sleep(0.03)
        file.write(content[half:])


@pytest.mark.parametrize("write", [replace, swap_links, write_slowly])
async def test_tokens_rotate_under_load_and_only_the_revoked_is_refused(
    tmp_path: Path, write: Callable[[Path, bytes], None]
) -> None:
    stays, goes = new_token(), new_token()
    served = guarded(tmp_path)
    keep = credentials_line(
        "stays", sha256=digest_of(stays.encode()).hex(), roles=("read", "register"), clusters=("*",)
    )
    gone = credentials_line("goes", sha256=digest_of(goes.encode()).hex(), roles=("read",))
    served.tokens.write_text(f"{keep}\n{gone}\n")
    failed: list[str] = []
    asked = 0

    async def load(number: int, stop: asyncio.Event) -> None:
        nonlocal asked
        async with session_of(served, {"authorization": f"Bearer {stays}"}) as session:
            while not stop.is_set():
                status = await status_of(session, "POST", "/pools", json=registration(f"p{number}"))
                asked += 1
                if status not in (200, 201):
                    failed.append(f"p{number}: {status}")

    async with (
        served.program,
        session_of(served, {"authorization": f"Bearer {goes}"}) as session,
        session.get("/pools/watch", headers={"accept": "application/x-ndjson"}) as watch,
    ):
        stop = asyncio.Event()
        clients = [asyncio.create_task(load(number, stop)) for number in range(8)]
        for round_number in range(4):
            other = credentials_line(f"other-{round_number}", sha256=f"{round_number:064x}", roles=("read",))
            write(served.tokens, f"{keep}\n{gone}\n{other}\n".encode())
            await asyncio.sleep(LOAD_S / 4)
            assert await status_of(session, "GET", "/pools") == 200
        revoked_s = time.monotonic()
        write(served.tokens, f"{keep}\n".encode())
        async with asyncio.timeout(3 * REVOKED_WITHIN_S):
            while await status_of(session, "GET", "/pools") != 401:
                await asyncio.sleep(0.02)
            ended = [line async for line in watch.content]
        assert time.monotonic() - revoked_s < 3 * REVOKED_WITHIN_S
        assert json.loads(ended[-1])["reason"] == "unauthorized"
        stop.set()
        await asyncio.gather(*clients)
    assert failed == []
    assert asked > 100


async def test_a_broken_file_changes_nothing_and_is_told(tmp_path: Path) -> None:
    served = guarded(tmp_path)
    async with served.program, session_of(served, bearer(Role.READ)) as session:
        for content in ("", "# nobody yet\nnot = a line", "a = {sha256 = 'x', roles = []}"):
            served.write(content)
            await served.program.wait_line("file not reloaded")
            assert await status_of(session, "GET", "/pools") == 200
            async with session.get("/metrics") as answer:
                assert 'poolmuster_credentials_file_usable{file="credentials"} 0.0' in await answer.text()
        served.tokens.unlink()
        await asyncio.sleep(1.0)
        assert await status_of(session, "GET", "/pools") == 200
        served.write(lines().replace("the-read", "the-reader"))
        await served.program.wait_line("file reloaded")
        assert await status_of(session, "GET", "/pools") == 200


def of_process(pid: int) -> list[str]:
    """What can be read about a process."""
    return [Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace") for name in ("cmdline", "environ")]


async def test_no_secret_shows_anywhere(served: GuardedProgram) -> None:
    planted = ["planted-in-a-header", "planted-in-a-query", "planted-in-a-body", "planted-as-a-name"]
    shown: list[str] = []
    async with session_of(served) as session:
        for headers in (bearer(Role.ADMIN), {"authorization": f"Bearer {planted[0]}"}, {"authorization": planted[0]}):
            for method, path in (
                ("GET", f"/pools?token={planted[1]}"),
                ("GET", "/status"),
                ("DELETE", "/pools/c/n/none"),
            ):
                async with session.request(method, path, headers=headers) as answer:
                    shown.append(str(answer.headers) + await answer.text())
            async with session.post("/pools", data=planted[2], headers={**headers, "content-type": "text/x"}) as answer:
                shown.append(str(answer.headers) + await answer.text())
        for path in ("/status", "/metrics", "/changes", "/openapi.json", "/"):
            async with session.get(path, headers=bearer(Role.ADMIN)) as answer:
                shown.append(str(answer.headers) + await answer.text())
    served.write(lines([f'leaky = {{sha256 = "{planted[3]}", roles = ["read"]}}']))
    await served.program.wait_line("file not reloaded")
    shown += [served.program.stdout, served.program.stderr]
    shown += of_process(served.program.pid)
    text = "\n".join(shown)
    secrets = [*TOKENS.values(), *(digest_of(token.encode()).hex() for token in TOKENS.values()), "PRIVATE KEY"]
    for secret in (*secrets, *planted):
        assert secret not in text, secret


async def test_what_needs_no_credentials_needs_them_nowhere_and_says_so(tmp_path: Path) -> None:
    served = guarded(tmp_path, host="0.0.0.0")
    anyone = [word for word in served.program.command if word not in ("--auth-tokens", str(served.tokens))]
    served.program.command = [*anyone, "--allow-anonymous"]
    async with served.program, session_of(served) as session:
        assert await status_of(session, "GET", "/pools", headers={"host": "example.com"}) == 200
        assert await status_of(session, "POST", "/pools", json=registration("a")) == 201
    assert "Anyone who can reach this address may do anything here" in served.program.stderr
