"""The files that TLS is set up by: what is taken, what is refused, and that no key shows."""

import errno
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

from poolmuster.auth.ca_bundle import CaBundle, read_authorities
from poolmuster.http.tls import ServerTls, TlsFiles
from poolmuster.model.errors import InvalidInput
from tests.support.pki import DAY, Authority, from_now, of_no_version

OURS = Authority()
PAIR = OURS.server("localhost")
SECRET = PAIR.encoded_key(BestAvailableEncryption(b"pass"))


@pytest.mark.parametrize(
    ("chain", "key", "says"),
    [
        (PAIR.cert_pem, SECRET, "the key is encrypted"),
        (PAIR.cert_pem, OURS.server("localhost").key_pem, "the key does not belong to the certificate"),
        (PAIR.cert_pem, b"", "the key is no PEM"),
        (PAIR.cert_pem, PAIR.cert_pem, "the key is no PEM"),
        (PAIR.cert_pem, PAIR.key_pem[:90], "the key is no PEM"),
        (PAIR.key_pem, PAIR.key_pem, "the certificate is no PEM"),
        (b"", PAIR.key_pem, "the certificate is no PEM"),
        (PAIR.der, PAIR.key_pem, "the certificate is no PEM"),
        (PAIR.cert_pem[:200], PAIR.key_pem, "the certificate is no PEM"),
    ],
)
def test_what_a_server_cannot_use_is_refused(tmp_path: Path, chain: bytes, key: bytes, says: str) -> None:
    """The message names the files, and shows nothing of what is in them."""
    (tmp_path / "cert").write_bytes(chain)
    (tmp_path / "key").write_bytes(key)
    with pytest.raises(InvalidInput, match=says) as refused:
        TlsFiles(str(tmp_path / "cert"), str(tmp_path / "key"))
    told = repr(refused.value) + refused.value.detail
    assert str(tmp_path / "key") in told
    assert not any(line and line.decode(errors="replace") in told for line in (chain + key).splitlines())


def test_an_empty_file_of_authorities_does_not_mean_the_systems(tmp_path: Path) -> None:
    paths = PAIR.write(tmp_path)
    (tmp_path / "ca").write_bytes(b"")
    with pytest.raises(InvalidInput, match="ca: holds no certificates"):
        TlsFiles(paths.cert, paths.key, str(tmp_path / "ca"))
    files = TlsFiles(paths.cert, paths.key, OURS.write(tmp_path, "ca"))
    context = files.current().context
    assert context.cert_store_stats()["x509"] == 1
    (tmp_path / "ca.pem").write_bytes(b"")
    assert files.client_ca is not None
    assert any([files.client_ca.refresh(), files.client_ca.refresh()])
    assert "holds no certificates" in str(files.client_ca.problem)
    assert files.current().context is context


def test_a_pair_is_taken_as_a_pair(tmp_path: Path) -> None:
    """The new certificate alone, with the old key, is never in use."""
    paths = PAIR.write(tmp_path)
    files = TlsFiles(paths.cert, paths.key)
    before = files.current()
    fresh = OURS.server("localhost", not_after=from_now(5 * DAY).replace(microsecond=0))
    Path(paths.cert).write_bytes(fresh.cert_pem)
    assert not files.pair.refresh()
    Path(paths.key).write_bytes(fresh.key_pem)
    assert not files.pair.refresh()
    assert files.current() is before
    assert files.pair.refresh()
    assert files.pair.problem is None
    assert files.current().not_after_ms == fresh.certificate.not_valid_after_utc.timestamp() * 1000


def test_a_certificate_out_of_its_time_is_a_notice() -> None:
    tls = ServerTls(PAIR.cert_pem, PAIR.key_pem)
    assert tls.notice(tls.not_before_ms) is None
    assert tls.notice(tls.not_after_ms - 1) is None
    assert "expired" in str(tls.notice(tls.not_after_ms))
    assert "not valid yet" in str(tls.notice(tls.not_before_ms - 1))
    expired = OURS.server("localhost", not_before=from_now(-2 * DAY), not_after=from_now(-DAY))
    assert ServerTls(expired.cert_pem, expired.key_pem).context.num_tickets == 0


def test_where_clients_are_asked_for_certificates_nothing_can_be_resumed() -> None:
    asking = ServerTls(PAIR.cert_pem, PAIR.key_pem, read_authorities(OURS.pem)).context
    assert asking.verify_mode is ssl.CERT_OPTIONAL
    assert asking.minimum_version is ssl.TLSVersion.TLSv1_3
    anybody = ServerTls(PAIR.cert_pem, PAIR.key_pem).context
    assert anybody.minimum_version is ssl.TLSVersion.TLSv1_2
    assert asking.num_tickets == anybody.num_tickets == 0


def test_no_file_is_left_open_and_no_key_shows() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    tls = ServerTls(PAIR.cert_pem, PAIR.key_pem)
    with pytest.raises(InvalidInput):
        ServerTls(PAIR.cert_pem, b"")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert "BEGIN" not in repr(tls)


def test_what_keeps_a_context_from_being_made_is_said_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads files again catches no more than this: anything else would end the program."""
    odd = CaBundle((OURS.der,))
    odd.ders = (b"a certificate that one library reads and the other does not",)
    with pytest.raises(InvalidInput, match="authorities of the clients"):
        ServerTls(PAIR.cert_pem, PAIR.key_pem, odd)

    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("poolmuster.platform.memfd.os.memfd_create", full)
    with pytest.raises(InvalidInput, match="Too many open files"):
        ServerTls(PAIR.cert_pem, PAIR.key_pem)


def test_a_certificate_of_a_version_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no PEM, or cannot be read"):
        ServerTls(of_no_version(PAIR.der), PAIR.key_pem)


def test_whom_the_system_trusts_vouches_for_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", Authority("Of the system").write(tmp_path))
    context = ServerTls(PAIR.cert_pem, PAIR.key_pem, read_authorities(OURS.pem)).context
    assert context.get_ca_certs(binary_form=True) == [OURS.der]
