"""Samples of every JSON shape of the interface, made by an instance in this process on a clock that stands still."""

import json
from typing import Any

from poolmuster.model.schema import RouterReplica
from tests.support.clock import ManualClock
from tests.support.service import Answer, Service

REGISTRATION: dict[str, Any] = {
    "cluster_id": "us-east-1-prod",
    "namespace": "inference",
    "dgd_name": "llama-70b",
    "relay_id": "3f0c9d1e",
    "frontend_url": "https://llama.us-east-1.example.com",
    "weight": 100,
    "location": {"region": "us-east-1", "availability_zone": "us-east-1a"},
    "models": [{"id": "meta-llama/Llama-3.3-70B-Instruct", "aliases": ["llama-70b"], "context_window": 131072}],
    "labels": {"tier": "gold"},
}
OTHER = {"cluster_id": "eu-west-1-prod", "namespace": "inference", "dgd_name": "qwen-32b", "relay_id": "77ab01c2"}
PATH, OTHER_PATH = (
    f"/pools/{cluster}" for cluster in ("us-east-1-prod/inference/llama-70b", "eu-west-1-prod/inference/qwen-32b")
)


async def make_samples() -> dict[str, Any]:
    """Every sample by its name, in the order in which a reader meets them."""
    routers = (RouterReplica("router-1", "https://router-1.example.com"),)
    async with Service(ManualClock(), boot_id="5b1f0c3a9d2e", routers=routers) as service:
        stream = await service.watch(sse=False)
        await _register(service, OTHER)
        registered = await _register(service, REGISTRATION)
        warming_up = (await service.get("/pools")).json
        await service.warm_up()
        for _ in range(2):
            await _register(service, OTHER | {"relay_id": "c3d41e5f"})
            await _register(service, OTHER)
        await _register(service, REGISTRATION)
        await _register(service, REGISTRATION | {"weight": 50})
        conflict = (await service.get(OTHER_PATH)).json
        status = (await service.get("/status")).json
        await service.request("DELETE", OTHER_PATH + "?reason=operator&detail=moved+to+eu-west-2")
        samples = {
            "registration": REGISTRATION,
            "registered": registered,
            "list_warming_up": warming_up,
            "list": (await service.get("/pools")).json,
            "list_with_leases": (await service.get("/pools?include=lease")).json,
            "pool": (await service.get(PATH)).json,
            "pool_with_conflict": conflict,
            "pool_gone": (await service.get(OTHER_PATH)).json,
            "routers": (await service.get("/routers")).json,
            "changes": (await service.get("/changes")).json,
            "status": status,
            "problems": await _problems(service),
        }
        await service.clock.advance(5_000)
        service.instance.close_streams()
        await service.clock.settle()
        return samples | {"watch": stream.events}


async def _register(service: Service, document: dict[str, Any]) -> Any:
    answer = await service.post(json.dumps(document).encode())
    assert answer.status in (200, 201), answer.body
    return answer.json


async def _problems(service: Service) -> list[Any]:
    gone = {key: REGISTRATION[key] for key in ("cluster_id", "namespace")} | {"dgd_name": "gone", "relay_id": "r"}
    await _register(service, gone)
    await service.request("DELETE", PATH.replace("llama-70b", "gone") + "?relay_id=r")
    answers: list[Answer] = [
        await service.post(b'{"cluster_id":"c","namespace":" n"}'),
        await service.get("/pools?modle=llama-70b"),
        await service.get("/pools/a/b/c"),
        await service.request("PUT", "/pools"),
        await service.get("/pools/watch", {"accept": "text/html"}),
        await service.post(json.dumps(gone).encode()),
        await service.post(b"{}", "text/plain"),
        await service.get("/pools", {"host": "evil.example"}),
    ]
    return [answer.json for answer in answers]


def written(samples: dict[str, Any]) -> str:
    """The samples as their file holds them."""
    return json.dumps(samples, indent=2, ensure_ascii=False) + "\n"
