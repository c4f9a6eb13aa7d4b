"""What the journal forgets, and when."""

import pytest

from poolmuster.core import journal
from poolmuster.core.claims import Claim
from poolmuster.core.journal import Journal
from tests.support.registrations import registration


def test_what_is_kept_for_long_does_not_keep_what_came_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "FORGOTTEN_A_TURN", 1)
    kept = Journal()
    for name, lease_ms in (("long", 1_000_000), ("short", 1_000), ("shorter", 500)):
        kept.claimed(Claim(registration(name, "r"), lease_ms, 0, "me"))
    for _ in range(4):
        kept.forget(2_000)
    assert len(kept) == 1
    assert kept.claim(registration("long").key) is not None
