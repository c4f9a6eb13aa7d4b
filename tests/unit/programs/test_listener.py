"""Which addresses answer to names of this machine only, and that no front is open by an oversight, or too early."""

import asyncio
from pathlib import Path

import pytest
from starlette.routing import Router

from poolmuster.auth.jwks import KeySet
from poolmuster.http.limits import HttpLimits
from poolmuster.model.address import Address
from poolmuster.programs.listener import Listener
from poolmuster.programs.settings.listen import ListenSettings, OidcSettings, UsageError
from tests.support.clock import ManualClock

HERE, EVERYWHERE = Address("127.0.0.1", 9090), Address("", 9090)


@pytest.mark.parametrize(
    ("listen", "auth_tokens", "named"), [(HERE, None, True), (HERE, "tokens.toml", False), (EVERYWHERE, None, False)]
)
def test_who_is_anonymous_on_loopback_has_to_name_it(listen: Address, auth_tokens: str | None, named: bool) -> None:
    assert ListenSettings(listen=listen, auth_tokens=auth_tokens).loopback_only is named


@pytest.mark.parametrize("auth_tokens", [None, "tokens.toml"])
@pytest.mark.parametrize(("health_listen", "named"), [(None, False), (HERE, True), (EVERYWHERE, False)])
def test_health_is_anonymous_whatever_the_other_address_wants(
    health_listen: Address | None, auth_tokens: str | None, named: bool
) -> None:
    settings = ListenSettings(listen=EVERYWHERE, health_listen=health_listen, auth_tokens=auth_tokens)
    assert settings.health_loopback_only is named


def test_settings_that_nobody_has_checked_open_no_front() -> None:
    with pytest.raises(UsageError, match="no credentials are set"):
        Listener(ListenSettings(listen=EVERYWHERE), HttpLimits(), ManualClock())


@pytest.mark.parametrize("health_listen", [None, HERE, EVERYWHERE])
def test_a_front_holds_each_address_to_its_own_rule(health_listen: Address | None) -> None:
    settings = ListenSettings(listen=HERE, health_listen=health_listen)
    rules = Listener(settings, HttpLimits(), ManualClock()).rules
    assert rules.loopback_only
    assert rules.health_loopback_only is settings.health_loopback_only
    assert rules.authorizer.allows_anonymous
    assert rules.auth_log is not None


def test_a_front_with_a_credentials_file_is_not_open(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("# nobody")
    rules = Listener(ListenSettings(listen=EVERYWHERE, auth_tokens=str(tokens)), HttpLimits(), ManualClock()).rules
    assert not rules.authorizer.allows_anonymous
    assert not rules.loopback_only


class BoundSocket:
    """A socket that is bound to where a resolver led."""

    def getsockname(self) -> tuple[str, int]:
        return "10.0.0.1", 8080

    def close(self) -> None:
        """It is given up."""


def test_a_name_that_leads_to_the_network_is_refused_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolmuster.programs.listener.bind", lambda *_: [BoundSocket()])
    listener = Listener(ListenSettings(listen=Address("localhost", 8080)), HttpLimits(), ManualClock())
    with pytest.raises(UsageError, match=r"localhost:8080 turned out to be 10\.0\.0\.1:8080"):
        listener.bind()


class Awaited(KeySet):
    """Keys that are still being fetched."""

    async def run(self) -> None:
        """The test says when they are there."""


async def test_nobody_is_listened_to_before_keys_were_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has a good token would be refused for nothing."""
    keys = Awaited("https://issuer.example", ManualClock())
    monkeypatch.setattr("poolmuster.programs.auth_setup.open_key_set", lambda *_, **__: keys)
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("# nobody")
    oidc = OidcSettings(issuers=((keys.issuer, "https://issuer.example/keys"),))
    listener = Listener(ListenSettings(auth_tokens=str(tokens), oidc=oidc), HttpLimits(), ManualClock())
    starting = asyncio.create_task(listener.start(Router(), Router(), "boot"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not starting.done()
    keys.first_fetch_done.set()
    await starting
