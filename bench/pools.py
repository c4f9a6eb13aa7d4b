"""Pools of one kibibyte, as a relay would register them."""

import json

BODY_BYTES = 1024
TEAMS = 50
CLUSTERS = 10


def body(number: int, *, note: str = "", labels: dict[str, str] | None = None) -> bytes:
    """A registration of `BODY_BYTES`; more only where ``labels`` take more."""
    document = {
        "cluster_id": f"cluster-{number % CLUSTERS}",
        "namespace": "serving",
        "dgd_name": f"pool-{number:05}",
        "frontend_url": f"http://pool-{number:05}.serving.example:8000",
        "location": {"region": f"region-{number % 4}", "zone": f"zone-{number % 12}"},
        "labels": {
            "team": f"team-{number % TEAMS}",
            "tenth": f"t{number // 2 % 10}",
            "half": "odd" if number % 2 else "even",
            "note": note,
            **(labels or {}),
        },
        "models": [
            {"id": f"acme/model-{number % 7}-{size}b", "max_context_length": 131072, "aliases": [f"model-{size}"]}
            for size in (8, 70)
        ],
        "relay_id": f"{number:016x}",
    }
    length = len(json.dumps(document))
    document["comment"] = "x" * max(0, BODY_BYTES - length - len(', "comment": ""'))
    return json.dumps(document).encode()
