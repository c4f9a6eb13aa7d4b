"""The keys of an issuer are those of the last good reading, and each change is said once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import aiohttp
import pytest
from structlog.testing import capture_logs

from poolmuster.auth.jwks import FileKeySet, UrlKeySet, check_key_url, open_key_set
from poolmuster.model.errors import InvalidInput
from tests.support.clock import ManualClock
from tests.support.issuer import ISSUER, Issuer
from tests.support.pki import replace_file


class KeyFile:
    """A key set in a file, being watched."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self.issuer = Issuer()
        self.clock = ManualClock()
        self.withdrawals = 0
        self.write()
        self.keys = FileKeySet(ISSUER, str(self.path), self.clock, self.withdrawn)

    def withdrawn(self) -> None:
        self.withdrawals += 1

    def write(self, content: bytes | None = None) -> None:
        replace_file(self.path, self.issuer.jwks() if content is None else content)

    async def settle(self) -> None:
        """Let it be read twice. Reading is done in a thread, which a clock of ours knows nothing of."""
        for _ in range(3):
            await self.clock.advance(250)
            while True:
                await asyncio.sleep(0)
                if self.clock._sleepers:
                    break


@contextlib.asynccontextmanager
async def running(file: KeyFile) -> AsyncIterator[None]:
    task = asyncio.create_task(file.keys.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_file_is_read_at_once_and_again_when_it_changes(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    assert file.keys.is_known
    assert file.keys.key("first") is not None
    async with running(file):
        file.issuer.add("second", number=1)
        file.write()
        await file.settle()
        assert file.keys.key("second") is not None
        assert file.withdrawals == 0, "nobody has to go because of a key more"
        file.issuer.withdraw("first")
        file.write()
        await file.settle()
        assert file.keys.key("first") is None
        assert file.withdrawals == 1
        assert file.keys.generation == 3


def test_the_path_of_a_file_is_a_source_that_has_nothing_to_look_for_again(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    keys = open_key_set(ISSUER, str(file.path), file.clock)
    assert isinstance(keys, FileKeySet)
    keys.request_refresh()
    assert keys.key("second") is None


CUT = "the connection was cut (a service that wants another client certificate, or one at all, may do so)"
FAILURES = [
    (aiohttp.ClientError("a secret"), "ClientError"),
    (UnicodeError("a secret"), "UnicodeError"),
    (TimeoutError(), "it does not answer in time"),
    (aiohttp.ServerDisconnectedError(), CUT),
    (ConnectionResetError(), CUT),
]


class FailingSession:
    """Every request of it raises ``error``."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get(self, *_: object, **__: object) -> NoReturn:
        raise self.error


@pytest.mark.parametrize(("error", "words"), FAILURES)
async def test_a_failed_fetch_is_a_problem_that_shows_no_secret(error: Exception, words: str) -> None:
    keys = UrlKeySet(ISSUER, "https://issuer.example/keys?token=secret", ManualClock())
    await keys._fetch(FailingSession(error))  # type: ignore[arg-type]  # a session that can do nothing else
    assert keys.problem == f"https://issuer.example/keys: {words}"


async def test_a_key_that_is_replaced_under_its_id_is_withdrawn(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    async with running(file):
        file.issuer.add("first", number=1)
        file.write()
        await file.settle()
        assert file.withdrawals == 1


@pytest.mark.parametrize("content", [b"{", b'{"keys": []}', b'{"keys": [{"kty": "oct", "kid": "a"}]}', b""])
async def test_a_file_without_a_key_of_use_keeps_the_last_keys_and_says_so_once(tmp_path: Path, content: bytes) -> None:
    file = KeyFile(tmp_path)
    with capture_logs() as lines:
        async with running(file):
            file.write(content)
            for _ in range(3):
                await file.settle()
            assert file.keys.key("first") is not None
            assert str(file.path) in str(file.keys.problem)
            file.write()
            await file.settle()
            assert file.keys.problem is None
    assert [line["event"] for line in lines] == [
        "issuer keys not readable",
        "issuer keys readable again",
    ]
    assert file.withdrawals == 0
    assert file.keys.failures == 1


async def test_keys_that_are_not_used_are_said_once(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    odd = file.issuer.jwks().replace(b'{"keys": [', b'{"keys": [{"kty": "oct", "kid": "a"}, ')
    with capture_logs() as lines:
        async with running(file):
            file.write(odd)
            await file.settle()
            file.write(odd + b" ")
            await file.settle()
    assert [(line["event"], line.get("why")) for line in lines] == [
        ("issuer keys ignored", ["key 0: its kind of key, or its curve, is not supported"])
    ]


async def test_a_change_of_keys_is_said_with_the_ids_as_they_may_stand_in_a_log(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    file.issuer.add("\x1b[31m\u0456", number=1)
    with capture_logs() as lines:
        async with running(file):
            file.write()
            await file.settle()
    assert [line["added"] for line in lines] == [["\\x1b[31m\\u0456"]]


def test_a_file_that_holds_no_keys_at_first_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"keys\.json: cannot be read"):
        FileKeySet(ISSUER, str(tmp_path / "keys.json"), ManualClock())


GOOD_URLS = [
    "https://issuer.example/keys",
    "https://10.0.0.1:6443/openid/v1/jwks",
    "https://[2001:db8::1]/keys?a=b",
    "http://127.0.0.1:8001/openid/v1/jwks",
    "http://localhost:8001/keys",
    "http://[::1]:8001/keys",
]
BAD_URLS = [
    "http://issuer.example/keys",
    "http://localhost.example/keys",
    "http://127.0.0.1.example/keys",
    "ftp://issuer.example/keys",
    "https://user:hunter2@issuer.example/keys",
    "https://user@issuer.example/keys",
    "https:///keys",
    "https://issuer.example/keys#a",
    "https://issuer.example:port/keys",
    "https://issuer.example/a b",
    "https://issu\u0435r.example/keys",
    "https://[::1/keys",
    "://",
    "",
]


@pytest.mark.parametrize("url", GOOD_URLS)
def test_keys_come_over_https_or_from_this_machine(url: str) -> None:
    check_key_url(url)
    assert isinstance(open_key_set(ISSUER, url, ManualClock()), UrlKeySet)


@pytest.mark.parametrize("url", BAD_URLS)
def test_keys_come_from_nowhere_else(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_key_url(url)
    assert "hunter2" not in caught.value.detail


async def test_keys_that_were_never_fetched_say_so() -> None:
    keys = UrlKeySet(ISSUER, "https://issuer.example/keys", ManualClock())
    assert not keys.is_known
    assert keys.problem == "they were not fetched yet"
    assert keys.key("first") is None
    assert not keys.holds(b"")
    assert len(keys) == 0
