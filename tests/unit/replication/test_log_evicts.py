"""What the journal forgets, and when."""

import pytest

from poolmuster.replication import log as journal
from poolmuster.replication.log import ReplicationLog
from poolmuster.replication.lww import Write
from tests.support.registrations import registration


def test_what_is_kept_for_long_does_not_keep_what_came_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "EVICT_BATCH", 1)
    kept = ReplicationLog()
    for name, lease_ms in (("long", 1_000_000), ("short", 1_000), ("shorter", 500)):
        kept.record_write(Write(registration(name, "r"), lease_ms, 0, "me"))
    for _ in range(4):
        kept.evict(2_000)
    assert len(kept) == 1
    assert kept.write_of(registration("long").key) is not None
