"""The files that a relay reads again while it runs."""

import ssl
from pathlib import Path

import pytest

from poolmuster.model.errors import InvalidInput
from poolmuster.platform.files import FILE_LIMIT_BYTES, WatchedFile, parse_token
from poolmuster.platform.tls_client import parse_authorities
from poolmuster.relay.settings import PoolSettings
from poolmuster.relay.watched_files import PoolFiles, parse_labels
from tests.unit.relay.world import KEY

PEM = b"""-----BEGIN CERTIFICATE-----
MIIBnzCCAUWgAwIBAgIUT26XVC1mEyskpePV1Sdy8zGEzQIwCgYIKoZIzj0EAwIw
JDEiMCAGA1UEAwwZQW4gYXV0aG9yaXR5IG9mIHRoZSB0ZXN0czAgFw0yNjExMzAw
OTI4NDVaGA8yMTI2MTEwNjA5Mjg0NVowJDEiMCAGA1UEAwwZQW4gYXV0aG9yaXR5
IG9mIHRoZSB0ZXN0czBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABO51qYjGKLVM
WBGyEC9K9R1ZLsbtwIdRZ9lzKTNRyvKhsonopmlxYNmfo0Ve8zg9AFHdu4XGn428
Q9pYJAKw2hyjUzBRMB0GA1UdDgQWBBR0VfNoC6yj3I89xD54rhA3kFJgxDAfBgNV
HSMEGDAWgBR0VfNoC6yj3I89xD54rhA3kFJgxDAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0gAMEUCIH0NP3JQbeM8pwl3fl5kWY1q6k5gxypS9fmox6la2SDH
AiEArQzom27A8fLRZM3cpdkZBiwXdaYtXNEDyJaQE54iClE=
-----END CERTIFICATE-----
"""


def test_a_watched_file_keeps_its_last_good_content(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    watched: WatchedFile[dict[str, str]] = WatchedFile(str(path), parse_labels, {})
    assert watched.refresh()
    assert "cannot be read" in str(watched.problem)
    assert not watched.refresh()
    path.write_text('a="1"')
    assert watched.refresh()
    assert (watched.value, str(watched.problem)) == ({"a": "1"}, "None")
    assert not watched.refresh()
    path.write_text("nonsense")
    assert watched.refresh()
    assert watched.value == {"a": "1"}
    assert "line 1" in str(watched.problem)
    path.write_text('a="1"')
    assert watched.refresh(), "that the problem is gone is news"
    assert str(watched.problem) == "None"
    path.write_bytes(b"\n" * (FILE_LIMIT_BYTES + 1))
    assert watched.refresh()
    assert "over" in str(watched.problem)


def test_a_watched_file_follows_the_swap_of_a_link_as_kubernetes_does_it(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "labels").write_text(f'v="{version}"')
    data = tmp_path / "..data"
    data.symlink_to("1")
    (tmp_path / "labels").symlink_to("..data/labels")
    watched: WatchedFile[dict[str, str]] = WatchedFile(str(tmp_path / "labels"), parse_labels, {})
    watched.refresh()
    swapped = tmp_path / "..new"
    swapped.symlink_to("2")
    swapped.rename(data)
    assert watched.refresh()
    assert watched.value == {"v": "2"}


def test_files_of_a_pool(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-token\n")
    (tmp_path / "ca").write_text("no certificate")
    files = PoolFiles(
        PoolSettings(
            key=KEY,
            frontend_url="http://h",
            advertise_url="http://h",
            token_file=str(tmp_path / "token"),
            ca_cert=str(tmp_path / "ca"),
        )
    )
    assert files.refresh()
    assert (files.token, files.labels) == ("secret-token", {})
    assert files.tls is not None
    assert files.tls.cert_store_stats()["x509"] == 0, "nobody is trusted, rather than whom the system trusts"
    assert len(files.problems) == 1
    assert "PEM" in files.problems[0]


@pytest.mark.parametrize("content", [b"", b"\n", b"no certificate", "é".encode(), PEM[: len(PEM) // 2]])
def test_a_file_of_authorities_without_one_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput, match="PEM"):
        parse_authorities(content)


def test_the_authorities_of_a_file_are_trusted_and_no_others(tmp_path: Path) -> None:
    """A file that is caught empty while it is written anew changes nothing."""
    path = tmp_path / "ca.pem"
    path.write_bytes(PEM)
    files = PoolFiles(PoolSettings(key=KEY, frontend_url="http://h", advertise_url="http://h", ca_cert=str(path)))
    assert files.refresh()
    trusted = files.tls
    assert trusted is not None
    assert trusted.cert_store_stats()["x509"] == 1
    assert (trusted.verify_mode, trusted.check_hostname) == (ssl.CERT_REQUIRED, True)
    path.write_bytes(b"")
    assert files.refresh()
    assert files.tls is trusted
    assert "PEM" in files.problems[0]


@pytest.mark.parametrize("content", [b"", b"  \n", b"two words", b"two\nlines", "é".encode()])
def test_a_token_file_without_a_token_is_refused_without_showing_it(content: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_token(content)
    assert "words" not in caught.value.detail
