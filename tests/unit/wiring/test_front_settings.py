"""Which addresses answer to names of this machine only, and that no front is open by an oversight."""

from pathlib import Path

import pytest

from poolmuster.httpd.limits import HttpLimits
from poolmuster.model.address import Address
from poolmuster.wiring.front import Front
from poolmuster.wiring.front_settings import FrontSettings, UsageError
from tests.support.clock import ManualClock

HERE, EVERYWHERE = Address("127.0.0.1", 9090), Address("", 9090)


@pytest.mark.parametrize(
    ("listen", "auth_tokens", "named"), [(HERE, None, True), (HERE, "tokens.toml", False), (EVERYWHERE, None, False)]
)
def test_who_is_anonymous_on_loopback_has_to_name_it(listen: Address, auth_tokens: str | None, named: bool) -> None:
    assert FrontSettings(listen=listen, auth_tokens=auth_tokens).loopback_only is named


@pytest.mark.parametrize("auth_tokens", [None, "tokens.toml"])
@pytest.mark.parametrize(("health_listen", "named"), [(None, False), (HERE, True), (EVERYWHERE, False)])
def test_health_is_anonymous_whatever_the_other_address_wants(
    health_listen: Address | None, auth_tokens: str | None, named: bool
) -> None:
    settings = FrontSettings(listen=EVERYWHERE, health_listen=health_listen, auth_tokens=auth_tokens)
    assert settings.health_loopback_only is named


def test_settings_that_nobody_has_checked_open_no_front() -> None:
    with pytest.raises(UsageError, match="no credentials are set"):
        Front(FrontSettings(listen=EVERYWHERE), HttpLimits(), ManualClock())


@pytest.mark.parametrize("health_listen", [None, HERE, EVERYWHERE])
def test_a_front_holds_each_address_to_its_own_rule(health_listen: Address | None) -> None:
    settings = FrontSettings(listen=HERE, health_listen=health_listen)
    rules = Front(settings, HttpLimits(), ManualClock()).rules
    assert rules.loopback_only
    assert rules.health_loopback_only is settings.health_loopback_only
    assert rules.gate.is_open
    assert rules.refusals is not None


def test_a_front_with_a_credentials_file_is_not_open(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("# nobody")
    rules = Front(FrontSettings(listen=EVERYWHERE, auth_tokens=str(tokens)), HttpLimits(), ManualClock()).rules
    assert not rules.gate.is_open
    assert not rules.loopback_only
