"""Which authorities a file names, and whether the one behind a connection is among them."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from poolmuster.auth.ca_bundle import ANCHORS_CACHED, intern, not_after_ms, read_authorities
from poolmuster.model.errors import InvalidInput
from tests.support.pki import DAY, Authority, from_now, of_no_version, pem_of


def test_an_authority_vouches_while_it_is_in_the_file() -> None:
    ours, other = Authority("Ours"), Authority("Other")
    assert read_authorities(other.pem + ours.pem).trusts(ours.der)
    assert not read_authorities(other.pem).trusts(ours.der)


def test_one_that_was_issued_again_with_the_same_key_is_the_same() -> None:
    before, namesake = Authority("Ours"), Authority("Ours")
    again = (
        x509.CertificateBuilder()
        .subject_name(before.subject)
        .issuer_name(before.subject)
        .public_key(before.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(from_now(-DAY))
        .not_valid_after(from_now(4_000 * DAY))
        .sign(before.key, hashes.SHA384())
    )
    assert read_authorities(pem_of(again)).trusts(before.der)
    assert not read_authorities(namesake.pem).trusts(before.der)


def test_an_intermediate_counts_by_itself_and_by_its_root() -> None:
    root = Authority("Root")
    between, sibling = root.intermediate("Between"), root.intermediate("Sibling")
    assert read_authorities(between.pem).trusts(between.der)
    assert read_authorities(root.pem).trusts(between.der), "a file that names the root now"
    assert not read_authorities(sibling.pem).trusts(between.der)
    assert not read_authorities(between.pem).trusts(root.der)


def test_a_name_alone_vouches_for_nobody() -> None:
    real, forged = Authority("Root"), Authority("Root")
    assert not read_authorities(real.pem).trusts(forged.intermediate().der)


@pytest.mark.parametrize(
    "pem", [b"", b"\n", b"text", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_file_without_certificates_is_refused(pem: bytes) -> None:
    with pytest.raises(InvalidInput, match="holds no certificates"):
        read_authorities(pem)


def test_text_between_certificates_is_passed_over() -> None:
    ours, other = Authority("Ours"), Authority("Other")
    both = read_authorities("# Größe\n".encode() + ours.pem + b"\n# other\n" + other.pem + ours.pem)
    assert both.trusts(ours.der)
    assert both.trusts(other.der)


def test_what_is_no_certificate_is_vouched_for_by_nobody() -> None:
    assert not read_authorities(Authority().pem).trusts(b"\x30\x00")


def test_judgements_are_remembered_within_bounds() -> None:
    authorities = read_authorities(Authority().pem)
    for number in range(ANCHORS_CACHED + 10):
        assert not authorities.trusts(number.to_bytes(4, "big"))
    assert len(authorities._trusted) == ANCHORS_CACHED


def test_equal_anchors_are_held_once() -> None:
    der = Authority().der
    assert intern(bytes(bytearray(der))) is intern(bytes(bytearray(der)))


def test_the_end_of_a_certificate() -> None:
    ends = from_now(DAY).replace(microsecond=0)
    assert not_after_ms(Authority(not_after=ends).der) == ends.timestamp() * 1000


def test_a_certificate_of_a_version_that_there_is_not_is_refused() -> None:
    """The library has an error of its own for it, which is no `ValueError`."""
    with pytest.raises(InvalidInput):
        read_authorities(of_no_version(Authority("Ours").der))
