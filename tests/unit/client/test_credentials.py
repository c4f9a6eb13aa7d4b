"""The files of a client's credentials: read at the start, looked at while it runs, never shown."""

import logging
import os
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

from poolmuster.client.credentials import REFRESH_INTERVAL_MS, SETTLE_MS, ClientCredentials, HiddenText, UnusableFile
from poolmuster.client.settings import ClientSettings
from poolmuster.model.errors import InvalidInput
from tests.support.clock import ManualClock
from tests.support.pki import Authority, Issued, replace_file
from tests.unit.client.refreshing import refresh, refresh_when_due

TOKEN = "planted-token-that-shows-nowhere"
URL = "https://x.example"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


def is_due(credentials: ClientCredentials) -> bool:
    """Asked by a call, lest the type checker takes one answer for all."""
    return credentials.is_due


async def test_a_token_is_read_at_the_start_and_again_within_a_second(token_file: Path) -> None:
    clock = ManualClock()
    credentials = ClientCredentials(ClientSettings(token_file=str(token_file)), clock)
    assert credentials.authorization == f"Bearer {TOKEN}"
    replace_file(token_file, b"second")
    assert not credentials.is_due
    clock.jump(REFRESH_INTERVAL_MS - 1)
    assert not credentials.is_due
    clock.jump(1)
    assert is_due(credentials)
    await refresh(credentials, clock)
    assert credentials.authorization == "Bearer second"
    assert not credentials.is_due


async def test_where_nothing_changed_a_refresh_takes_no_time(token_file: Path) -> None:
    clock = ManualClock()
    credentials = ClientCredentials(ClientSettings(token_file=str(token_file)), clock)
    await credentials.refresh()
    assert clock.monotonic_ms() == ManualClock().monotonic_ms()


async def test_after_a_refusal_it_is_due_at_once(token_file: Path) -> None:
    clock = ManualClock()
    credentials = ClientCredentials(ClientSettings(token_file=str(token_file)), clock)
    replace_file(token_file, b"second")
    credentials.request_refresh()
    assert credentials.is_due
    await refresh(credentials, clock)
    assert credentials.authorization == "Bearer second"


async def test_without_files_it_is_never_due() -> None:
    clock = ManualClock()
    credentials = ClientCredentials(ClientSettings(), clock)
    clock.jump(10 * REFRESH_INTERVAL_MS)
    assert not credentials.is_due
    credentials.request_refresh()
    assert not credentials.is_due
    assert (credentials.authorization, credentials.tls) == (None, True)


async def test_a_file_that_breaks_leaves_what_it_held_and_is_told_once(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    credentials = ClientCredentials(ClientSettings(token_file=str(token_file)), clock)
    replace_file(token_file, b"planted two lines\nplanted")
    for _ in range(3):
        await refresh_when_due(credentials, clock)
    assert credentials.authorization == f"Bearer {TOKEN}"
    (line,) = told(caplog)
    assert str(token_file) in line
    assert "planted" not in line
    os.remove(token_file)  # noqa: PTH107 - done at once
    await refresh_when_due(credentials, clock)
    assert "No such file" in told(caplog)[1]
    replace_file(token_file, b"third")
    await refresh_when_due(credentials, clock)
    assert credentials.authorization == "Bearer third"
    assert len(told(caplog)) == 2


async def test_a_file_that_is_being_written_is_not_taken_half(tmp_path: Path) -> None:
    first, second = Authority("first"), Authority("second")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(first.pem)
    clock = ManualClock()
    credentials = ClientCredentials(ClientSettings(urls=(URL,), ca_cert=str(ca)), clock)
    before = credentials.tls
    ca.write_bytes(second.pem)
    clock.jump(REFRESH_INTERVAL_MS)

    async def write_on(duration_ms: float) -> None:
        assert duration_ms == SETTLE_MS
        ca.write_bytes(second.pem + first.pem)

    credentials._clock = ManualClock(clock.monotonic_ms())
    credentials._clock.sleep_ms = write_on  # type: ignore[method-assign]
    await credentials.refresh()
    assert credentials.tls is before
    credentials._clock = clock
    await refresh_when_due(credentials, clock)
    assert credentials.tls is not before


async def test_the_swap_of_a_link_is_noticed_as_kubernetes_does_it(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "token").write_text(f"token-{version}")
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "token").symlink_to("..data/token")
    clock = ManualClock()
    credentials = ClientCredentials(ClientSettings(token_file=str(tmp_path / "token")), clock)
    (tmp_path / "..new").symlink_to("2")
    os.replace(tmp_path / "..new", tmp_path / "..data")  # noqa: PTH105 - as the kubelet does it
    await refresh_when_due(credentials, clock)
    assert credentials.authorization == "Bearer token-2"


async def test_a_certificate_without_its_key_waits_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority()
    paths = authority.client("a").write(tmp_path)
    clock = ManualClock()
    settings = ClientSettings(urls=(URL,), client_cert=paths.cert, client_key=paths.key)
    credentials = ClientCredentials(settings, clock)
    before = credentials.tls
    fresh = authority.client("a")
    replace_file(Path(paths.cert), fresh.cert_pem)
    await refresh_when_due(credentials, clock)
    assert credentials.tls is before
    assert "the key is not the client certificate's" in told(caplog)[0]
    replace_file(Path(paths.key), fresh.key_pem)
    await refresh_when_due(credentials, clock)
    assert credentials.tls is not before
    assert len(told(caplog)) == 1


async def test_the_systems_authorities_may_go_away_while_a_certificate_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    system = authority.write(tmp_path, "system")
    monkeypatch.setenv("SSL_CERT_FILE", system)
    paths = authority.client("a").write(tmp_path)
    clock = ManualClock()
    credentials = ClientCredentials(ClientSettings(urls=(URL,), client_cert=paths.cert, client_key=paths.key), clock)
    before = credentials.tls
    os.remove(system)  # noqa: PTH107 - done at once
    authority.client("a").write(tmp_path)
    await refresh_when_due(credentials, clock)
    assert credentials.tls is before
    assert "SSL_CERT_FILE" in told(caplog)[0]


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"planted\nplanted", b"planted token", "plantéd".encode(), b"\x00planted"]
)
def test_a_file_without_a_token_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(UnusableFile) as caught:
        ClientCredentials(ClientSettings(token_file=str(path)), ManualClock())
    assert caught.value.setting == "token_file"
    assert str(path) in caught.value.detail
    error: BaseException | None = caught.value
    while error is not None:
        assert "plant" not in repr(error)
        error = error.__cause__


@pytest.mark.parametrize("setting", ["token_file", "ca_cert", "client_cert"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, setting: str) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(UnusableFile, match=r"none: cannot be read: No such file or directory\.") as caught:
        ClientCredentials(msgspec.structs.replace(ClientSettings(urls=(URL,)), **{setting: path}), ManualClock())
    assert caught.value.setting == setting


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(InvalidInput, match="needs the client certificate"):
        ClientSettings(client_key="k")


def _pair(folder: Path, certificate: bytes, key: bytes | None) -> ClientSettings:
    cert = replace_file(folder / "cert.pem", certificate)
    key_path = None if key is None else replace_file(folder / "cert.key", key)
    return ClientSettings(urls=(URL,), client_cert=cert, client_key=key_path)


@pytest.fixture(scope="module")
def issued() -> Issued:
    return Authority().intermediate().client("a")


def test_one_file_may_hold_the_certificate_and_its_key(tmp_path: Path, issued: Issued) -> None:
    for content in (issued.cert_pem + issued.key_pem, issued.key_pem + issued.cert_pem):
        ClientCredentials(_pair(tmp_path, content, None), ManualClock())
        ClientCredentials(_pair(tmp_path, content, content), ManualClock())


def test_what_is_wrong_with_a_pair_is_said(tmp_path: Path, issued: Issued) -> None:
    encrypted = issued.encoded_key(BestAvailableEncryption(b"password"))
    mangled = issued.cert_pem.replace(b"M", b"N", 3)
    for certificate, key, reason in (
        (issued.key_pem, issued.key_pem, "no client certificate in PEM"),
        (issued.cert_pem, issued.cert_pem, "no key of the client certificate"),
        (issued.cert_pem, None, "no key of the client certificate"),
        (issued.cert_pem, encrypted, "encrypted"),
        (issued.cert_pem, Authority().client("a").key_pem, "the key is not the client certificate's"),
        (mangled, issued.key_pem, "cannot be used"),
    ):
        with pytest.raises(UnusableFile, match=reason) as caught:
            ClientCredentials(_pair(tmp_path, certificate, key), ManualClock())
        assert caught.value.setting == "client_cert"
        assert "cert.pem" in caught.value.detail


def test_authorities_may_have_remarks_around_them_in_any_language(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes("# Größe\n".encode() + Authority().pem + b"subject=x\r\n" + Authority().pem)
    ClientCredentials(ClientSettings(urls=(URL,), ca_cert=str(path)), ManualClock())
    path.write_bytes(b"# nothing")
    with pytest.raises(UnusableFile, match="holds no certificates in PEM form"):
        ClientCredentials(ClientSettings(urls=(URL,), ca_cert=str(path)), ManualClock())


def test_files_are_checked_also_where_no_url_needs_them(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile):
        ClientCredentials(ClientSettings(urls=("http://x",), ca_cert=str(tmp_path / "none")), ManualClock())


def test_nothing_shows_in_any_repr(token_file: Path, tmp_path: Path, issued: Issued) -> None:
    settings = _pair(tmp_path, issued.cert_pem, issued.key_pem)
    settings = ClientSettings(
        urls=(URL,), token_file=str(token_file), client_cert=settings.client_cert, client_key=settings.client_key
    )
    credentials = ClientCredentials(settings, ManualClock())
    shown = f"{settings!r} {credentials!r} {credentials._files!r} {vars(credentials)!r} {credentials.authorization!r}"
    assert TOKEN not in shown
    assert "PRIVATE" not in shown
    assert str(HiddenText(TOKEN)) == TOKEN
