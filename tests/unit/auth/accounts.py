"""Service accounts under test: one issuer, a clock that stands, and which accounts are known."""

from collections.abc import Iterator

import pytest

from poolmuster.auth.rate_limit import VerificationBudget
from poolmuster.auth.service_accounts import ServiceAccounts
from poolmuster.model.auth import AuthenticationError, AuthFailure, ServiceAccountCredential
from tests.support.clock import ManualClock
from tests.support.issuer import ACCOUNT, AUDIENCE, NAMESPACE, GivenKeys, Issuer


class World:
    """`ServiceAccounts` that trust one issuer."""

    def __init__(self, algorithm: str = "ES256", *, published: bool = True) -> None:
        self.clock = ManualClock()
        self.issuer = Issuer(algorithm=algorithm)
        self.keys = GivenKeys(self.issuer, self.clock)
        if published:
            self.keys.publish()
        self.accounts = ServiceAccounts(
            {self.issuer.url: self.keys}, AUDIENCE, self.clock, VerificationBudget(self.clock)
        )
        self.asked_for: list[tuple[str, str, str]] = []

    def known(self, issuer: str, namespace: str, account: str) -> bool:
        self.asked_for.append((issuer, namespace, account))
        return (issuer, namespace, account) == (self.issuer.url, NAMESPACE, ACCOUNT)

    @property
    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def token(self, **changes: object) -> str:
        """A token of this moment; changes that are ``None`` take a claim out."""
        return self.issuer.token(self.now_ms, **changes)

    def verify(self, token: str) -> ServiceAccountCredential:
        return self.accounts.verify(token, self.known)

    def refusal(self, token: str) -> AuthFailure:
        """Why ``token`` proves nothing. Neither it nor a part of it is told."""
        with pytest.raises(AuthenticationError) as caught:
            self.verify(token)
        shown = f"{caught.value.text} {caught.value!r} {caught.value}"
        assert not [part for part in secrets_of(token) if part in shown]
        cause: BaseException | None = caught.value
        while cause is not None:
            assert isinstance(cause, AuthenticationError), "a foreign error would show what it read"
            cause = cause.__cause__ or cause.__context__
        return caught.value.reason


def secrets_of(token: str) -> Iterator[str]:
    """Parts of a token that must not be shown anywhere."""
    yield from (part for part in token.split(".") if len(part) > 8)
