"""Signing keys fetched over a real network: rotation, every failure, and that nobody ever waits for them."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from poolmuster.auth.jwks import UrlKeySet
from poolmuster.auth.service_accounts import ServiceAccounts
from poolmuster.model.auth import AuthenticationError, AuthFailure, ServiceAccountCredential
from poolmuster.platform.lease_clock import SystemClock
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.key_server import Way, key_server
from tests.support.pki import Authority, replace_file
from tests.support.ports import free_port

pytestmark = pytest.mark.integration

WITHIN_S = 2.0
MARGIN = 3.0


class Fetched:
    """Service accounts of an issuer whose keys are fetched."""

    def __init__(self, issuer: Issuer, url: str, refresh_ms: int = 1_000, **files: str) -> None:
        self.issuer = issuer
        self.withdrawals = 0
        self.keys = UrlKeySet(ISSUER, url, SystemClock(), self._withdrawn, refresh_ms=refresh_ms, **files)
        self.accounts = ServiceAccounts({ISSUER: self.keys}, AUDIENCE, SystemClock())
        self._number = 0

    def _withdrawn(self) -> None:
        self.withdrawals += 1

    def token(self) -> str:
        """A token that was never seen."""
        self._number += 1
        return self.issuer.token(SystemClock().wall_ms(), jti=str(self._number))

    def verify(self, token: str) -> ServiceAccountCredential:
        return self.accounts.verify(token, lambda *_: True)

    def outcome(self, token: str) -> AuthFailure | None:
        """Why ``token`` proves nothing, or ``None``."""
        try:
            self.verify(token)
        except AuthenticationError as error:
            return error.reason
        return None


@contextlib.asynccontextmanager
async def fetching(issuer: Issuer, url: str, refresh_ms: int = 1_000, **files: str) -> AsyncIterator[Fetched]:
    fetched = Fetched(issuer, url, refresh_ms, **files)
    task = asyncio.create_task(fetched.keys.run())
    try:
        yield fetched
        assert not task.done(), "whatever comes, it goes on"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.05)  # connections over TLS close a little later


async def until(holds: Callable[[], bool], within_s: float = WITHIN_S * MARGIN) -> float:
    """Wait for something, and tell how long it took."""
    begun_s = time.monotonic()
    while not holds():
        assert time.monotonic() - begun_s < within_s, "it never came"
        await asyncio.sleep(0.01)
    return time.monotonic() - begun_s


def tls_of(authority: Authority, folder: Path, *names: str) -> ssl.SSLContext:
    paths = authority.server(*names).write(folder, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paths.cert, paths.key)
    return context


async def test_keys_rotate_under_load_without_a_refusal_of_who_is_signed_by_a_published_one() -> None:
    issuer = Issuer()
    async with key_server(issuer) as server, fetching(issuer, server.url) as fetched:
        await until(lambda: fetched.keys.is_known)
        outcomes: list[AuthFailure | None] = []

        async def load() -> None:
            while True:
                outcomes.append(fetched.outcome(fetched.token()))
                await asyncio.sleep(0.002)

        running = asyncio.create_task(load())
        for number in range(1, 4):
            before = issuer.signs_by
            new = f"key-{number}"
            issuer.add(new, number=number)
            issuer.signs_by = before
            await until(lambda new=new: fetched.keys.key(new) is not None)  # type: ignore[misc]  # bound as of now
            issuer.signs_by = new
            proof = fetched.verify(fetched.token())
            issuer.withdraw(before)
            took_s = await until(lambda before=before: fetched.keys.key(before) is None)  # type: ignore[misc]  # bound as of now
            assert took_s < WITHIN_S * MARGIN
            assert fetched.accounts.holds(proof)
            assert fetched.withdrawals == number
        running.cancel()
        assert len(outcomes) > 100
        assert set(outcomes) == {None}


async def test_who_is_signed_by_a_withdrawn_key_is_refused_within_two_seconds() -> None:
    issuer = Issuer()
    async with key_server(issuer) as server, fetching(issuer, server.url) as fetched:
        await until(lambda: fetched.keys.is_known)
        old = fetched.token()
        proof = fetched.verify(old)
        issuer.add("second", number=1)
        issuer.withdraw("first")
        await until(lambda: not fetched.accounts.holds(proof))
        assert fetched.outcome(old) is AuthFailure.UNKNOWN_KEY
        assert fetched.outcome(fetched.token()) is None


async def test_an_unknown_key_is_looked_for_at_once_where_the_issuer_is_seldom_asked() -> None:
    issuer = Issuer()
    async with key_server(issuer) as server, fetching(issuer, server.url, refresh_ms=3_600_000) as fetched:
        await until(lambda: fetched.keys.is_known)
        await asyncio.sleep(1.5)
        assert server.asked == 1
        issuer.add("second", number=1)
        assert await until(lambda: fetched.outcome(fetched.token()) is None) < MARGIN
        asked = server.asked
        assert asked <= 3
        issuer.signs_by = "first"
        stranger = Issuer()
        stranger.add("third", number=2)
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < 2.5:
            assert fetched.outcome(stranger.token(SystemClock().wall_ms())) is AuthFailure.UNKNOWN_KEY
            await asyncio.sleep(0.001)
        assert server.asked - asked <= 4, "once a second, however many ask"


async def test_what_has_not_changed_is_not_sent_again_and_no_cookie_is_kept() -> None:
    issuer = Issuer()
    async with key_server(issuer) as server, fetching(issuer, server.url) as fetched:
        await until(lambda: server.not_modified > 0)
        assert fetched.keys.problem is None
        assert fetched.keys.generation == 1
        assert set(server.cookies) == {None}
        assert set(server.authorizations) == {None}


async def test_the_first_fetch_can_be_waited_for_and_an_issuer_is_never_asked_without_a_pause() -> None:
    issuer = Issuer()
    async with key_server(issuer) as server, fetching(issuer, server.url, refresh_ms=0) as fetched:
        await asyncio.wait_for(fetched.keys.first_fetch_done.wait(), WITHIN_S * MARGIN)
        assert fetched.outcome(fetched.token()) is None
        await asyncio.sleep(1)
        assert server.asked <= 11


FAILURES = {
    Way.HANG: "does not answer in time",
    Way.DRIP: "does not answer in time",
    Way.CUT: "the connection was cut",
    Way.REDIRECT: "answers 302, and redirects are not followed",
    Way.NOT_FOUND: "answers 404",
    Way.UNAUTHORIZED: "answers 401: it expects a token, or another one",
    Way.BROKEN: "answers 502",
    Way.HUGE: "more than 262144 bytes",
    Way.ENDLESS: "more than 262144 bytes",
    Way.HTML: "is no key set: not JSON",
    Way.EMPTY: "holds no key that can be used",
    Way.NO_BODY: "is no key set: not JSON",
    Way.GZIP: "in an encoding that was not requested",
    Way.NOT_MODIFIED: "answers 304",
}


@pytest.mark.parametrize("way", FAILURES)
async def test_keys_that_cannot_be_had_at_first_are_said_why_and_come_when_they_can(way: Way) -> None:
    issuer = Issuer()
    async with key_server(issuer) as server:
        server.way = way
        with capture_logs() as lines:
            async with fetching(issuer, server.url, refresh_ms=100) as fetched:
                await asyncio.wait_for(fetched.keys.first_fetch_done.wait(), WITHIN_S * MARGIN)
                await until(lambda: fetched.keys.failures > 1, 10)
                problem = str(fetched.keys.problem)
                assert FAILURES[way] in problem
                assert server.url in problem
                with pytest.raises(AuthenticationError) as caught:
                    fetched.verify(fetched.token())
                assert caught.value.reason is AuthFailure.NO_KEYS
                assert FAILURES[way] in caught.value.text
                server.way = Way.GOOD
                server.end()
                await until(lambda: fetched.outcome(fetched.token()) is None, 10)
        assert [line["problem"] for line in lines if line.get("problem") == problem] == [problem], "once"
        assert server.elsewhere == 0


@pytest.mark.parametrize("way", [way for way in FAILURES if way is not Way.NOT_MODIFIED])
async def test_keys_that_cannot_be_had_any_more_stay_and_nobody_waits(way: Way) -> None:
    issuer = Issuer()
    async with key_server(issuer) as server, fetching(issuer, server.url, refresh_ms=100) as fetched:
        await until(lambda: fetched.keys.is_known)
        proof = fetched.verify(fetched.token())
        server.way = way
        longest_s = 0.0
        failures = fetched.keys.failures
        ends_s = time.monotonic() + 10
        while fetched.keys.failures == failures:
            assert time.monotonic() < ends_s
            begun_s = time.monotonic()
            assert fetched.outcome(fetched.token()) is None
            longest_s = max(longest_s, time.monotonic() - begun_s)
            await asyncio.sleep(0.005)
        assert longest_s < 0.2
        assert FAILURES[way] in str(fetched.keys.problem)
        assert fetched.accounts.holds(proof)
        assert fetched.withdrawals == 0


async def test_a_server_that_goes_away_and_comes_back() -> None:
    issuer = Issuer()
    port = free_port()
    async with key_server(issuer, port=port) as server:
        url = server.url
    async with fetching(issuer, url) as fetched:
        await until(lambda: fetched.keys.failures > 0)
        assert "Connection refused" in str(fetched.keys.problem)
        async with key_server(issuer, port=port):
            await until(lambda: fetched.outcome(fetched.token()) is None)
        await until(lambda: "Connection refused" in str(fetched.keys.problem))
        assert fetched.outcome(fetched.token()) is None
        issuer.add("second", number=1)
        async with key_server(issuer, port=port):
            await until(lambda: fetched.outcome(fetched.token()) is None)


async def test_a_name_without_an_address_is_said() -> None:
    async with fetching(Issuer(), "https://issuer.invalid/keys?secret=x") as fetched:
        await until(lambda: fetched.keys.failures > 0)
        shown, _, resolver_says = str(fetched.keys.problem).partition(" (")
        assert shown == "https://issuer.invalid/keys: its name cannot be resolved"
        assert "secret" not in resolver_says


async def test_an_authority_that_is_not_trusted_vouches_for_no_keys_until_its_file_says_so(tmp_path: Path) -> None:
    issuer = Issuer()
    authority, other = Authority(), Authority("Another authority")
    ca_file = other.write(tmp_path)
    async with (
        key_server(issuer, tls_of(authority, tmp_path, "localhost")) as server,
        fetching(issuer, server.url, ca_file=ca_file) as fetched,
    ):
        await until(lambda: fetched.keys.failures > 0)
        assert "its certificate is by an authority that is not trusted here" in str(fetched.keys.problem)
        assert server.asked == 0
        authority.write(tmp_path)
        await until(lambda: fetched.outcome(fetched.token()) is None)
        replace_file(tmp_path / "ca.pem", b"-----BEGIN")
        await asyncio.sleep(2.5)
        assert fetched.keys.problem is None, "a broken file leaves the last good one"
        other.write(tmp_path)
        await until(lambda: fetched.keys.problem is not None)
        assert fetched.outcome(fetched.token()) is None, "the keys that were vouched for stay"


async def test_the_systems_authorities_count_where_no_file_is_named(tmp_path: Path) -> None:
    issuer = Issuer()
    async with (
        key_server(issuer, tls_of(Authority(), tmp_path, "localhost")) as server,
        fetching(issuer, server.url) as fetched,
    ):
        await until(lambda: fetched.keys.failures > 0)
        assert "its certificate is by an authority that is not trusted here" in str(fetched.keys.problem)


async def test_a_certificate_for_another_name_vouches_for_nothing(tmp_path: Path) -> None:
    issuer, authority = Issuer(), Authority()
    async with (
        key_server(issuer, tls_of(authority, tmp_path, "other.example")) as server,
        fetching(issuer, server.url, ca_file=authority.write(tmp_path)) as fetched,
    ):
        await until(lambda: fetched.keys.failures > 0)
        assert "its certificate is for another name" in str(fetched.keys.problem)
        assert server.asked == 0


async def test_a_server_without_tls_is_not_asked_over_it(tmp_path: Path) -> None:
    issuer = Issuer()
    async with (
        key_server(issuer) as server,
        fetching(
            issuer,
            server.url.replace("http:", "https:"),
            ca_file=Authority().write(tmp_path),
            token_file=replace_file(tmp_path / "token", b"planted"),
        ) as fetched,
    ):
        await until(lambda: fetched.keys.failures > 0)
        assert "it does not speak TLS there" in str(fetched.keys.problem)
        assert server.asked == 0


async def test_the_token_for_the_endpoint_is_read_again_and_told_to_nobody(tmp_path: Path) -> None:
    issuer = Issuer()
    file = tmp_path / "token"
    replace_file(file, b"planted-1\n")
    with capture_logs() as lines:
        async with key_server(issuer) as server, fetching(issuer, server.url, token_file=str(file)) as fetched:
            await until(lambda: fetched.keys.is_known)
            assert server.authorizations[0] == "Bearer planted-1"
            replace_file(file, b"planted-2\n")
            await until(lambda: server.authorizations[-1] == "Bearer planted-2")
            replace_file(file, b"\n")
            await asyncio.sleep(2.5)
            assert server.authorizations[-1] == "Bearer planted-2"
            server.way = Way.REDIRECT
            await until(lambda: fetched.keys.problem is not None)
            assert server.elsewhere == 0
            shown = f"{lines} {fetched.keys.problem} {fetched.keys!r} {vars(fetched.keys)!r}"
    assert "planted" not in shown
    assert [line["event"] for line in lines if "file" in line["event"]] == ["file for issuer keys not reloaded"]
