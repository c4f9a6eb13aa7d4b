"""Who gets what from the service, path by path and role by role."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import structlog

from poolmuster.api.encoders import POOLS_A_PIECE
from poolmuster.api.openapi import document
from poolmuster.auth.authenticator import CredentialAuthenticator
from poolmuster.auth.credentials_file import ParsedCredentials, parse_credentials
from poolmuster.http.auth import Authorizer
from poolmuster.http.auth_log import AuthFailureLog
from poolmuster.model.auth import AuthFailure, Role
from poolmuster.model.key import PoolKey
from poolmuster.programs.settings.serve import ServeLimits
from tests.support.clock import ManualClock
from tests.support.principals import CLUSTER, MALFORMED, OPEN, READ, TOKENS, bearer, lines
from tests.support.registrations import body
from tests.support.service import Answer, Service, Stream, path_of

JSON = {"content-type": "application/json"}


class Guarded(Service):
    """A service that wants credentials, from a file that the test writes."""

    def __init__(self, **limits: int) -> None:
        clock = ManualClock()
        self.credentials = parse_credentials(lines().encode())
        self.looked_up = 0
        self.authenticator = CredentialAuthenticator(self._look_up, clock)
        self.refusals = AuthFailureLog(clock)
        super().__init__(
            clock=clock,
            loopback_only=False,
            limits=ServeLimits(**limits),
            authorizer=Authorizer(self.authenticator),
            refusals=self.refusals,
        )

    def _look_up(self) -> ParsedCredentials:
        self.looked_up += 1
        return self.credentials

    def write(self, content: str) -> None:
        """Another credentials file."""
        self.credentials = parse_credentials(content.encode())
        self.authenticator.invalidate()

    async def send(self, content: bytes, headers: dict[str, str]) -> Answer:
        return await self.request("POST", "/pools", {**JSON, **headers}, content)


@pytest.fixture
async def service() -> AsyncIterator[Guarded]:
    async with Guarded() as service:
        assert (await service.send(body("a", CLUSTER), bearer(Role.ADMIN))).status == 201
        yield service


def test_the_tables_here_know_every_path() -> None:
    known = {path.replace("/c/n/a", "/{cluster_id}/{namespace}/{dgd_name}") for path in (*OPEN, *READ)}
    assert known == set(document()["paths"])


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("path", READ[:-1])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_only_who_may_read_reads(service: Guarded, method: str, path: str, role: Role) -> None:
    answer = await service.request(method, path, bearer(role))
    assert answer.status == (200 if role in (Role.READ, Role.ADMIN) else 403)
    assert ("www-authenticate" in answer.headers) is False


@pytest.mark.parametrize("role", Role)
async def test_only_who_may_read_watches(service: Guarded, role: Role) -> None:
    stream = await service.watch(headers=bearer(role))
    assert stream.status == (200 if role in (Role.READ, Role.ADMIN) else 403)


@pytest.mark.parametrize("role", Role)
async def test_only_who_may_register_registers_and_deregisters(service: Guarded, role: Role) -> None:
    may = role in (Role.REGISTER, Role.ADMIN)
    assert (await service.send(body("a", CLUSTER), bearer(role))).status == (200 if may else 403)
    assert (await service.send(body("b", CLUSTER), bearer(role))).status == (201 if may else 403)
    answer = await service.request("DELETE", f"/pools/{CLUSTER}/n/a", bearer(role))
    assert answer.status == (204 if may else 403)
    listed = await service.request("GET", "/pools", bearer(Role.READ))
    assert [pool["dgd_name"] for pool in listed.json["pools"]] == (["b"] if may else ["a"])


@pytest.mark.parametrize("header", [None, *MALFORMED.values()], ids=["missing", *MALFORMED])
async def test_without_good_credentials_everything_but_the_open_paths_is_401(
    service: Guarded, header: str | None
) -> None:
    headers = {} if header is None else {"authorization": header}
    for method, path in (
        *((method, path) for path in READ for method in ("GET", "HEAD")),
        ("POST", "/pools"),
        ("DELETE", "/pools/c/n/a"),
        ("PUT", "/pools"),
        ("GET", "/nothing"),
        ("OPTIONS", "/pools"),
        ("GET", "/pools/%zz/n/a"),
        ("GET", "/pools?nonsense=1"),
    ):
        answer = await service.request(method, path, {**JSON, **headers}, b"not even JSON")
        assert answer.status == 401, (method, path)
        realm, _, error = answer.headers["www-authenticate"].partition(", ")
        assert realm == 'Bearer realm="poolmuster"'
        assert error == ("" if header is None else 'error="invalid_token"')
        if method != "HEAD":
            assert answer.json["type"] == "urn:poolmuster:unauthenticated"
            assert sorted(answer.json) == ["detail", "status", "title", "type"]
        told = json.dumps([dict(answer.headers), answer.body.decode()]).lower()
        assert not any(word in told for word in ("expired", "digest", "sha", "malformed")), "why is not told"


@pytest.mark.parametrize(
    "header",
    [None, *MALFORMED.values(), *(f"Bearer {token}" for token in TOKENS.values())],
    ids=["missing", *MALFORMED, *TOKENS],
)
async def test_the_open_paths_are_open_whatever_is_presented(service: Guarded, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for path in OPEN:
        assert (await service.request("GET", path, headers)).status == 200, path


@pytest.mark.parametrize("role", [None, *Role])
async def test_why_it_is_not_ready_is_told_to_readers_only(service: Guarded, role: Role | None) -> None:
    service.instance.stop()
    answer = await service.request("GET", "/health/ready", bearer(role) if role else {})
    assert answer.status == 503
    if role in (Role.READ, Role.ADMIN):
        assert answer.json["detail"] == "This instance is stopping."
    else:
        assert answer.body == b"not ready\n"


@pytest.mark.parametrize("role", Role)
async def test_who_is_known_learns_what_there_is(service: Guarded, role: Role) -> None:
    assert (await service.request("GET", "/nothing", bearer(role))).status == 404
    assert (await service.request("PUT", "/pools", bearer(role))).status == 405


FOREIGN = [
    "d",
    "C",
    "c ",
    "\uff43",
    "c\u0301",
    "\u0441",
    "c\u200b",
    "team",
    "Team-a",
    "xteam-a",
    "c/n",
    "c%2Fn",
    "*",
    "team-*\n",
]


@pytest.mark.parametrize("cluster_id", FOREIGN)
async def test_no_spelling_of_a_cluster_leads_around_its_name(service: Guarded, cluster_id: str) -> None:
    answer = await service.send(body("x", cluster_id), bearer(Role.REGISTER))
    assert answer.status in (400, 403)
    path = path_of(PoolKey(cluster_id, "n", "x"))
    assert (await service.request("DELETE", path, bearer(Role.REGISTER))).status in (400, 403)
    listed = (await service.request("GET", "/pools", bearer(Role.READ))).json["pools"]
    assert [pool["dgd_name"] for pool in listed] == ["a"]


@pytest.mark.parametrize("cluster_id", ["c", "team-", "team-a", "team-\u00e9/%2F"])
async def test_a_token_speaks_for_its_clusters_exact_and_by_pattern(service: Guarded, cluster_id: str) -> None:
    assert (await service.send(body("x", cluster_id), bearer(Role.REGISTER))).status == 201
    path = path_of(PoolKey(cluster_id, "n", "x"))
    assert (await service.request("DELETE", path, bearer(Role.REGISTER))).status == 204


@pytest.mark.parametrize(
    "path",
    [
        "/pools/%64/n/a",
        "/pools/d/../c/n/a",
        "/pools/c/../d/n/a",
        "/pools/c%2F..%2Fd/n/a",
        "//pools/d/n/a",
        "/pools//d/n/a",
    ],
)
async def test_no_spelling_of_a_path_leads_to_another_cluster(path: str) -> None:
    async with Guarded() as service:
        for cluster_id in ("c", "d"):
            await service.send(body("a", cluster_id), bearer(Role.ADMIN))
        answer = await service.request("DELETE", path, bearer(Role.REGISTER))
        assert answer.status in (400, 403, 404)
        listed = (await service.request("GET", "/pools", bearer(Role.READ))).json["pools"]
        assert [pool["cluster_id"] for pool in listed] == ["c", "d"]


async def test_what_others_sent_before_does_not_help(service: Guarded) -> None:
    """A heartbeat whose bytes are known is not parsed again, and judged all the same."""
    content = body("x", "elsewhere")
    assert (await service.send(content, bearer(Role.ADMIN))).status == 201
    assert (await service.send(content, bearer(Role.REGISTER))).status == 403
    assert (await service.send(content, bearer(Role.ADMIN))).status == 200


@pytest.mark.parametrize(("left", "status"), [("nobody", 401), ("without the role", 403), ("as before", 201)])
async def test_what_is_revoked_between_head_and_body_registers_nothing(
    service: Guarded, left: str, status: int
) -> None:
    """A body has ten seconds to come, and a revoked credential two to be refused."""
    content = {
        "nobody": "# nobody",
        "as before": lines(),
        "without the role": lines().replace('roles = ["register"], clusters = ["c", "team-*"]', 'roles = ["infer"]'),
    }[left]
    headers = {**JSON, **bearer(Role.REGISTER)}
    answer = await service.request(
        "POST", "/pools", headers, body("late", CLUSTER), before_body=lambda: service.write(content)
    )
    assert answer.status == status


async def test_a_revoked_watch_is_told_and_ended_and_the_others_go_on(service: Guarded) -> None:
    reading = await service.watch(headers=bearer(Role.READ), sse=False)
    other = await service.watch(headers=bearer(Role.ADMIN), sse=False)
    service.write("\n".join(line for line in lines().splitlines() if "the-read" not in line))
    await service.clock.advance(600)
    assert reading.events[-1]["type"] == "closing"
    assert reading.events[-1]["reason"] == "unauthorized"
    assert reading.ended
    assert not other.ended
    assert (await service.watch(headers=bearer(Role.READ))).status == 401


async def test_a_watch_that_loses_the_role_ends_too(service: Guarded) -> None:
    reading = await service.watch(headers=bearer(Role.READ), sse=False)
    service.write(lines().replace('roles = ["read"]', 'roles = ["infer"]'))
    await service.clock.advance(600)
    assert reading.ended


async def test_a_watch_goes_on_through_any_number_of_generations(service: Guarded) -> None:
    reading = await service.watch(headers=bearer(Role.READ), sse=False)
    for _ in range(5):
        service.write(lines())
        await service.clock.advance(600)
    await service.send(body("b", CLUSTER), bearer(Role.REGISTER))
    await service.clock.settle()
    assert [event["type"] for event in reading.events if event["type"] != "ping"][-1] == "added"


async def test_a_watch_is_judged_once_in_each_generation(service: Guarded) -> None:
    await service.watch(headers=bearer(Role.READ))
    service.write(lines())
    before = service.looked_up
    await service.clock.advance(5_000)
    assert service.looked_up == before + 1


async def test_a_revoked_watch_that_reads_slowly_gets_nothing_more(service: Guarded) -> None:
    reading = await service.watch(headers=bearer(Role.READ), sse=False)
    reading.stall()
    await service.send(body("b", CLUSTER), bearer(Role.REGISTER))
    await service.clock.settle()
    service.write("# nobody")
    await service.send(body("c", CLUSTER), bearer(Role.REGISTER))
    await service.clock.settle()
    reading.read_on()
    await service.clock.advance(600)
    assert [event["type"] for event in reading.events][-1] == "closing"
    assert reading.ended


async def test_a_snapshot_breaks_off_where_its_reader_is_revoked(service: Guarded) -> None:
    """In the middle of an event there is no saying why, and the rest is not for this reader."""
    for number in range(2 * POOLS_A_PIECE):
        await service.send(body(f"p{number}", CLUSTER), bearer(Role.ADMIN))
    stream = Stream(service.app, "/pools/watch", bearer(Role.READ))
    service.streams.append(stream)
    stream.stall()
    await service.clock.settle()
    service.write("# nobody")
    stream.read_on()
    await service.clock.settle()
    assert stream.ended
    assert stream.events == []
    assert b'"dgd_name"' not in bytes(stream.data)


async def test_streams_are_bounded_for_each_credential() -> None:
    async with Guarded(streams_per_credential=2) as service:
        service.write(lines().replace('roles = ["admin"]}', 'roles = ["admin"], streams = 1}'))
        streams = [await service.watch(headers=bearer(Role.READ)) for _ in range(3)]
        assert [stream.status for stream in streams] == [200, 200, 429]
        assert [(await service.watch(headers=bearer(Role.ADMIN))).status for _ in range(2)] == [200, 429]
        streams[0].cut()
        await service.clock.settle()
        assert (await service.watch(headers=bearer(Role.READ))).status == 200


async def test_pools_are_bounded_for_each_credential_and_renewals_are_not_refused() -> None:
    async with Guarded() as service:
        service.write(
            lines().replace('clusters = ["c", "team-*"]', 'clusters = ["c", "team-*"], pools_per_cluster = 2')
        )
        for name, cluster_id, status in (
            ("a", "c", 201),
            ("b", "c", 201),
            ("d", "c", 429),
            ("a", "c", 200),
            ("d", "team-a", 201),
        ):
            answer = await service.send(body(name, cluster_id), bearer(Role.REGISTER))
            assert answer.status == status, (name, cluster_id)
        assert (await service.send(body("d", "c"), bearer(Role.ADMIN))).status == 201


async def test_an_audit_line_for_each_new_pool_deregistration_and_refusal(service: Guarded) -> None:
    with structlog.testing.capture_logs() as logs:
        await service.send(body("x", CLUSTER), bearer(Role.REGISTER))
        await service.send(body("x", CLUSTER), bearer(Role.REGISTER))
        await service.request("DELETE", f"/pools/{CLUSTER}/n/x?reason=operator", bearer(Role.ADMIN))
        await service.send(body("x", "d"), bearer(Role.REGISTER))
        await service.request("GET", "/pools?token=secret")
    lines_told = [(line["event"], line.get("principal"), line.get("pool"), line.get("reason")) for line in logs]
    assert lines_told == [
        ("A pool was registered", "the-register", "c/n/x", None),
        ("A deregistration was taken", "the-admin", "c/n/x", "operator"),
        ("A request was refused", "the-register", None, "forbidden"),
        ("A request was refused", None, None, "missing"),
    ]
    assert "'d'" in logs[2]["why"]
    assert "secret" not in str(logs)


async def test_a_flood_of_refusals_is_counted_and_few_lines(service: Guarded) -> None:
    with structlog.testing.capture_logs() as logs:
        for _ in range(500):
            await service.request("GET", "/pools", {"authorization": "Bearer wrong"})
    assert len(logs) == 1
    assert service.refusals.counts[AuthFailure.UNKNOWN_TOKEN] == 500
    task = asyncio.create_task(service.refusals.run())
    with structlog.testing.capture_logs() as later:
        await service.clock.advance(3000)
    task.cancel()
    assert [(line["event"], line["left_out"]) for line in later] == [("More requests were refused", 499)]
