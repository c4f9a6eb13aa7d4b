"""How the other end of a connection is named in the log."""

from collections.abc import Sequence
from typing import Any

import pytest

from poolmuster.httpd.hosts import shown_address


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        (("2001:db8::1", 5, 0, 0), "2001:db8::1"),
        (None, "unknown"),
    ],
)
def test_an_address_is_the_same_whichever_socket_took_it(peer: Sequence[Any] | None, shown: str) -> None:
    assert shown_address(peer) == shown
