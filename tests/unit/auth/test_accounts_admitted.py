"""Service accounts let in by the credentials file: verified once, judged whenever anything changes."""

import pytest

from poolmuster.auth.authenticator import CredentialAuthenticator
from poolmuster.auth.credentials_file import parse_credentials
from poolmuster.auth.service_accounts import ServiceAccounts
from poolmuster.model.auth import AuthenticationError, AuthFailure
from tests.support.clock import ManualClock
from tests.support.issuer import ACCOUNT, AUDIENCE, ISSUER, NAMESPACE, GivenKeys, Issuer

FILE = f"""
relay = {{issuer = "{ISSUER}", service_account = "{NAMESPACE}/{ACCOUNT}", roles = ["register"], clusters = ["*"]}}
"""


class Door:
    """An authenticator that knows one service account."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.issuer = Issuer()
        self.keys = GivenKeys(self.issuer, self.clock, self._withdrawn)
        self.keys.publish()
        self.accounts = ServiceAccounts({ISSUER: self.keys}, AUDIENCE, self.clock)
        self.credentials = parse_credentials(FILE.encode())
        self.authenticator = CredentialAuthenticator(lambda: self.credentials, self.clock, accounts=self.accounts)

    def _withdrawn(self) -> None:
        self.authenticator.invalidate()

    def header(self) -> bytes:
        return b"Bearer " + self.issuer.token(self.clock.wall_ms()).encode()

    def refusal(self, header: bytes) -> AuthFailure:
        with pytest.raises(AuthenticationError) as caught:
            self.authenticator.authenticate(header, None)
        return caught.value.reason


def test_a_token_that_comes_again_and_again_is_verified_once() -> None:
    door = Door()
    header = door.header()
    admissions = {id(door.authenticator.authenticate(header, None)) for _ in range(1000)}
    assert len(admissions) == 1
    assert door.accounts.verifications == 1


async def test_an_admission_ends_with_its_token() -> None:
    door = Door()
    header = door.header()
    admission = door.authenticator.authenticate(header, None)
    assert admission.expires_at_ms == door.clock.wall_ms() + 3_600_000
    door.clock.jump(3_600_000)
    assert door.refusal(header) is AuthFailure.EXPIRED
    with pytest.raises(AuthenticationError) as caught:
        door.authenticator.reauthenticate(admission)
    assert caught.value.reason is AuthFailure.EXPIRED


def test_a_key_that_is_withdrawn_takes_its_admissions_along_and_no_others() -> None:
    door = Door()
    old_header = door.header()
    old = door.authenticator.authenticate(old_header, None)
    door.issuer.add("second", number=1)
    door.keys.publish()
    assert door.authenticator.authenticate(old_header, None) is old, "a key more makes nobody come anew"
    new_header = door.header()
    new = door.authenticator.authenticate(new_header, None)
    door.issuer.withdraw("first")
    door.keys.publish()
    assert door.refusal(old_header) is AuthFailure.UNKNOWN_KEY
    with pytest.raises(AuthenticationError) as caught:
        door.authenticator.reauthenticate(old)
    assert caught.value.reason is AuthFailure.UNKNOWN_KEY
    assert door.authenticator.reauthenticate(new).principal.name == "relay"
    assert door.authenticator.authenticate(new_header, None).principal.name == "relay"


def test_an_account_whose_line_was_taken_out_is_refused_without_a_look_at_its_signature() -> None:
    door = Door()
    header = door.header()
    door.authenticator.authenticate(header, None)
    door.credentials = parse_credentials(b"# nobody")
    door.authenticator.invalidate()
    verifications = door.accounts.verifications
    assert door.refusal(header) is AuthFailure.UNKNOWN_ACCOUNT
    assert door.accounts.verifications == verifications


def test_a_token_of_nobody_that_only_looks_like_one_of_kubernetes_is_refused() -> None:
    door = Door()
    assert door.refusal(b"Bearer a.b.c") is AuthFailure.BAD_JWT
    assert door.refusal(b"Bearer abc") is AuthFailure.UNKNOWN_TOKEN
