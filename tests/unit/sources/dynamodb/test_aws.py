"""Where the table is and who we are to AWS: what is said where, and that no provider's fault ends the refresh."""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from poolmuster.model.source import SourceReason
from poolmuster.sources.polled.table import StoreError

pytest.importorskip("botocore", reason="botocore is not here: it comes with the extra 'dynamodb'")

from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import ClientError, CredentialRetrievalError
from botocore.session import Session

from poolmuster.sources.dynamodb.aws import AwsSigner, RegionMissing, TableLocation, find_location

HTTP, HTTPS = TableLocation("t", None, "http://here"), TableLocation("t", "r-1", "https://there")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, file or metadata service of this machine is looked at."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


class Provider:
    """A session whose chain of credentials is this one function."""

    def __init__(self, load: Callable[[], Credentials | None]) -> None:
        self.load_credentials = load
        self.get_credentials = load

    def get_component(self, name: str) -> "Provider":
        assert name == "credential_provider"
        return self


def access(load: Callable[[], Any], place: TableLocation = HTTPS) -> AwsSigner:
    session: Any = Provider(load)
    return AwsSigner(session, place)


def trouble_of(found: AwsSigner) -> StoreError:
    with pytest.raises(StoreError) as raised:
        found.sign("Query", b"{}")
    return raised.value


def test_an_endpoint_alone_is_enough() -> None:
    place = find_location(Session(), "t", None, "http://127.0.0.1:8000/")
    assert place == TableLocation("t", None, "http://127.0.0.1:8000")
    assert str(place) == "Table t (no region, http://127.0.0.1:8000)"


def test_without_endpoint_and_region_the_error_names_the_flag_and_the_variables() -> None:
    with pytest.raises(RegionMissing, match=r"--dynamodb-region.*AWS_REGION.*AWS_DEFAULT_REGION"):
        find_location(Session(), "t", None, None)


def test_the_flag_wins_over_variables_and_variables_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[default]\nregion = eu-west-3\n")
    assert find_location(Session(), "t", None, None).region == "eu-west-3"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    assert find_location(Session(), "t", None, None).region == "eu-west-2"
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert find_location(Session(), "t", None, None).endpoint_url == "https://dynamodb.eu-west-1.amazonaws.com"
    assert (
        find_location(Session(), "t", "cn-north-1", None).endpoint_url == "https://dynamodb.cn-north-1.amazonaws.com.cn"
    )
    assert find_location(Session(), "t", "moon-1", None).endpoint_url == "https://dynamodb.moon-1.amazonaws.com"


@pytest.mark.parametrize("region", ["evil.example/", "US EAST", "x" * 64, "a@b"])
def test_what_is_no_regions_name_becomes_no_host(monkeypatch: pytest.MonkeyPatch, region: str) -> None:
    monkeypatch.setenv("AWS_REGION", region)
    with pytest.raises(RegionMissing):
        find_location(Session(), "t", None, None)


async def test_an_http_endpoint_without_credentials_is_signed_for_with_none() -> None:
    found = access(lambda: None, HTTP)
    await found.refresh()
    assert "Credential=local/" in found.sign("Query", b"{}")["Authorization"]
    assert found._source is None


async def test_credentials_that_are_there_are_used_for_an_http_endpoint_too() -> None:
    found = access(lambda: Credentials("K", "S", method="env"), HTTP)
    await found.refresh()
    assert "Credential=K/" in found.sign("Query", b"{}")["Authorization"]


async def test_an_https_endpoint_without_credentials_is_not_called() -> None:
    found = access(lambda: None)
    assert trouble_of(found).reason is SourceReason.CREDENTIALS_MISSING
    await found.refresh()
    assert trouble_of(found).reason is SourceReason.CREDENTIALS_MISSING
    assert "No AWS credentials were found" in trouble_of(found).detail


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CredentialRetrievalError(provider="p", error_msg="SECRET"), "CredentialRetrievalError"),
        (ClientError({"Error": {"Code": "AccessDenied", "Message": "SECRET"}}, "AssumeRole"), "AccessDenied"),
        (OSError(2, "No such file or directory", "/token"), "No such file or directory: /token"),
        (OSError(5, "Broken"), "Broken"),
        (ValueError("SECRET"), "ValueError"),
        (RuntimeError("SECRET"), "RuntimeError"),
        (KeyError("AccessKeyId"), "KeyError"),
    ],
)
async def test_whatever_a_provider_raises_is_told_without_secrets_and_tried_again(error: Exception, said: str) -> None:
    answers: list[Exception | None] = [error, None]

    def load() -> Credentials:
        raised = answers.pop(0)
        if raised is not None:
            raise raised
        return Credentials("K", "S")

    found = access(load)
    await found.refresh()
    trouble = trouble_of(found)
    assert trouble.reason is SourceReason.CREDENTIALS_MISSING
    assert said in trouble.detail
    assert "SECRET" not in trouble.detail
    await found.refresh()
    assert "Credential=K/" in found.sign("Query", b"{}")["Authorization"]


def _session_of(lasts: timedelta, then: Callable[[], dict[str, str]]) -> Any:
    return RefreshableCredentials("OLD", "S", "T", datetime.now(UTC) + lasts, then, "test")


async def test_credentials_that_cannot_be_renewed_are_used_till_they_expire_and_no_longer() -> None:
    def fails() -> dict[str, str]:
        raise CredentialRetrievalError(provider="p", error_msg="no")

    lasting = _session_of(timedelta(minutes=5), fails)
    found = access(lambda: lasting)
    found._source = lasting
    found._frozen = lasting._frozen_credentials
    await found.refresh()
    assert "Credential=OLD/" in found.sign("Query", b"{}")["Authorization"]
    lasting._expiry_time = datetime.now(UTC) - timedelta(seconds=1)
    await found.refresh()
    assert trouble_of(found).reason is SourceReason.CREDENTIALS_EXPIRED
    await found.refresh()
    assert trouble_of(found).reason is SourceReason.CREDENTIALS_EXPIRED


async def test_a_renewal_that_fails_is_told_once_while_the_credentials_are_good_and_once_when_it_works_again() -> None:
    works = False

    def renew() -> dict[str, str]:
        if not works:
            raise CredentialRetrievalError(provider="p", error_msg="SECRET")
        expires = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        return {"access_key": "NEW", "secret_key": "S", "token": "T", "expiry_time": expires}

    source = _session_of(timedelta(minutes=5), renew)
    found = access(lambda: source)
    found._source, found._frozen = source, source._frozen_credentials
    with capture_logs() as told:
        await found.refresh()
        await found.refresh()
        works = True
        await found.refresh()
        await found.refresh()
    assert [(line["event"], line.get("why"), line.get("still_good")) for line in told] == [
        ("The AWS credentials cannot be renewed", "CredentialRetrievalError", True),
        ("The AWS credentials are renewed again", None, None),
    ]


async def test_a_refresh_that_takes_long_holds_up_neither_the_loop_nor_a_call() -> None:
    go_on = threading.Event()

    def slow() -> dict[str, str]:
        assert go_on.wait(10)
        expires = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        return {"access_key": "NEW", "secret_key": "S", "token": "T", "expiry_time": expires}

    source = _session_of(timedelta(minutes=5), slow)
    found = access(lambda: source)
    found._source, found._frozen = source, source._frozen_credentials
    refresh = asyncio.create_task(found.refresh())
    await asyncio.sleep(0)
    assert "Credential=OLD/" in found.sign("Query", b"{}")["Authorization"]
    go_on.set()
    await refresh
    assert "Credential=NEW/" in found.sign("Query", b"{}")["Authorization"]


async def test_waiting_for_the_first_look_has_an_end() -> None:
    found = access(lambda: None)
    await found.wait_looked(0.01)
    await found.refresh()
    await found.wait_looked(10)


async def test_who_is_cancelled_while_a_provider_hangs_does_not_wait_for_it() -> None:
    go_on = threading.Event()
    found = access(lambda: go_on.wait(10) and None)
    task = asyncio.create_task(found.run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
