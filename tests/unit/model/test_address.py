"""Addresses to listen on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolmuster.model.address import Address, parse_address
from poolmuster.model.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("[::1]:0", Address("::1", 0)),
        (":8080", Address("", 8080)),
        ("[::]:65535", Address("::", 65535)),
        ("pool-host.example:00080", Address("pool-host.example", 80)),
    ],
)
def test_what_is_an_address(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8080",
        "127.0.0.1",
        "127.0.0.1:",
        "host:-1",
        "host:+1",
        "host:1 ",
        "host:0x1",
        "host:٨٠",
        "host:65536",
        "host:99999999999",
        "host:0000099999",
        "::1:80",
        "[::1]80",
        "[127.0.0.1]:80",
        "[]:80",
        "[name]:80",
        "http://host:80",
        "user@host:80",
        "a b:80",
        "a\nb:80",
        "a\x00:80",
        "[::1:80",
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_address(text)


@given(st.ip_addresses(), st.integers(0, 65535))
def test_every_ip_address_reads_back(ip: object, port: int) -> None:
    address = Address(str(ip), port)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("host", "loopback", "unspecified"),
    [
        ("127.0.0.1", True, False),
        ("127.8.9.1", True, False),
        ("::1", True, False),
        ("::ffff:127.0.0.1", True, False),
        ("::ffff:10.0.0.1", False, False),
        ("localhost", True, False),
        ("localhost.example", False, False),
        ("10.0.0.1", False, False),
        ("fe80::1", False, False),
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("", False, True),
        ("example", False, False),
    ],
)
def test_which_hosts_are_loopback_and_which_mean_all(host: str, loopback: bool, unspecified: bool) -> None:
    address = Address(host, 1)
    assert (address.is_loopback, address.is_unspecified) == (loopback, unspecified)
