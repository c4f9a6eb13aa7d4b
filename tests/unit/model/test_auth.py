"""Principals: what roles imply, and for which clusters they may speak."""

import pytest

from poolmuster.model import auth as access
from poolmuster.model.auth import ANONYMOUS, ClusterPatterns, Role, make_principal


def test_admin_is_everything_and_clusters_go_with_register_alone() -> None:
    admin = make_principal("a", [Role.ADMIN], ("ignored",))
    assert all(admin.has_role(role) for role in Role)
    assert admin.can_register("anything")
    assert make_principal("b", [Role.REGISTER, Role.READ], ("eu-*",)).can_register("eu-1")
    assert not make_principal("c", [Role.READ], ("*",)).can_register("eu-1")
    assert all(ANONYMOUS.has_role(role) for role in Role)


def test_answers_are_remembered_within_a_bound_and_are_the_same_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MATCH_CACHE_SIZE", 2)
    clusters = ClusterPatterns(("eu-*", "us-1"))
    for _ in range(2):
        found = {cluster_id: cluster_id in clusters for cluster_id in ("eu-1", "us-2", "us-1", "eu", "eu-2", "x")}
        assert found == {"eu-1": True, "us-2": False, "us-1": True, "eu": False, "eu-2": True, "x": False}
    assert len(clusters._match_cache) == 2
    assert repr(clusters) == "Clusters(('eu-*', 'us-1'))"
