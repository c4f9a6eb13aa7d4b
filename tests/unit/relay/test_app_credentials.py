"""Who gets what from a relay's own pages, path by path and role by role."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from poolmuster.auth.authenticator import CredentialAuthenticator
from poolmuster.auth.credentials_file import parse_credentials
from poolmuster.http.auth import AccessPolicy, Authorizer
from poolmuster.http.auth_log import AuthFailureLog
from poolmuster.model.auth import AuthFailure, Role
from poolmuster.relay.app import relay_apps
from tests.support.clock import ManualClock
from tests.support.principals import MALFORMED, bearer, lines
from tests.unit.relay.asking import ask_app
from tests.unit.relay.test_supervisor import FILE, crew_of
from tests.unit.relay.world import World

READ, NOWHERE = ("/status", "/metrics"), ("/", "/pools", "/status/")


class Pages:
    """The pages of a relay that wants credentials, and is about to stop."""

    def __init__(self, folder: Path) -> None:
        file = folder / "pools.toml"
        file.write_text(FILE.format("a", "http://a:1"))
        supervisor = crew_of(World(), file)
        supervisor.check()
        supervisor.stop()  # so that there is something to tell of why it is not ready
        clock, credentials = ManualClock(), parse_credentials(lines().encode())
        authorizer = Authorizer(CredentialAuthenticator(lambda: credentials, clock))
        self.refusals = AuthFailureLog(clock)
        rules = AccessPolicy(
            authorizer=authorizer, auth_log=self.refusals, loopback_only=False, health_loopback_only=True
        )
        self.main, self.health = relay_apps(supervisor, "boot", CollectorRegistry(), rules)

    async def status(
        self, path: str, headers: dict[str, str], *, health: bool = False, method: str = "GET"
    ) -> tuple[int, bytes]:
        """Status and body of an answer."""
        app = self.health if health else self.main
        return await ask_app(app, path, {"host": "relay.example", **headers}, method)


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


@pytest.mark.parametrize("role", Role)
async def test_only_who_may_read_reads(pages: Pages, role: Role) -> None:
    for path in READ:
        assert (await pages.status(path, bearer(role)))[0] == (200 if role in (Role.READ, Role.ADMIN) else 403), path
    for path in NOWHERE:
        assert (await pages.status(path, bearer(role)))[0] == 404, path


@pytest.mark.parametrize("header", [None, *MALFORMED.values()], ids=["missing", *MALFORMED])
async def test_without_good_credentials_everything_but_health_is_401(pages: Pages, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for method in ("GET", "HEAD", "POST", "DELETE"):
        for path in (*READ, *NOWHERE):
            assert (await pages.status(path, headers, method=method))[0] == 401, (method, path)
    assert sum(pages.refusals.counts.values()) == 4 * len((*READ, *NOWHERE))
    assert pages.refusals.counts[AuthFailure.FORBIDDEN] == 0
    assert await pages.status("/health/live", headers) == (200, b"ok\n")
    assert await pages.status("/health/ready", headers) == (503, b"not ready\n"), "why is told to readers only"
    assert b"This relay is stopping." in (await pages.status("/health/ready", bearer(Role.READ)))[1]


@pytest.mark.parametrize(("host", "answers"), [("localhost", True), ("evil.example", False)])
async def test_health_by_itself_is_open_and_shows_no_more(pages: Pages, host: str, answers: bool) -> None:
    for path, status in (("/health/live", 200), ("/health/ready", 503), ("/metrics", 200), ("/status", 404)):
        found, body = await pages.status(path, {"host": host}, health=True)
        assert found == (status if answers else 421), path
        assert b"stopping." not in body
