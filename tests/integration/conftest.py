"""What the tests of a server's TLS begin with."""

from pathlib import Path

import pytest

from tests.support.pki import Authority
from tests.support.tls_server import LOOPS, Files


@pytest.fixture(params=LOOPS)
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> Files:
    return Files(tmp_path, authority, client_ca=authority.pem)
