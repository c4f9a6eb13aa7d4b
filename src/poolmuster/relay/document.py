"""What is registered: the settings, the labels, and the models that the server serves now."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from poolmuster.model.strict_json import canonical
from poolmuster.relay.health import ServedModel
from poolmuster.relay.settings import PoolSettings


def document_of(settings: PoolSettings, file_labels: Mapping[str, str], models: tuple[ServedModel, ...]) -> bytes:
    """The registration without its ``relay_id``, in a form that is equal for equal facts."""
    key = settings.key
    document: dict[str, Any] = {
        "cluster_id": key.cluster_id,
        "namespace": key.namespace,
        "dgd_name": key.dgd_name,
        "frontend_url": settings.advertise_url,
        "models": _models(settings, models),
    }
    location = {"region": settings.region, "availability_zone": settings.availability_zone}
    if location := {name: value for name, value in location.items() if value is not None}:
        document["location"] = location
    if settings.weight is not None:
        document["weight"] = settings.weight
    if labels := {**file_labels, **dict(settings.labels)}:
        document["labels"] = labels
    return canonical(document)


def _models(settings: PoolSettings, models: tuple[ServedModel, ...]) -> list[dict[str, Any]]:
    aliases: dict[str, set[str]] = defaultdict(set)
    for model_id, alias in settings.aliases:
        aliases[model_id].add(alias)
    documents = []
    for model in sorted(models, key=lambda each: each.id):
        document: dict[str, Any] = {"id": model.id}
        if model.id in aliases:
            document["aliases"] = sorted(aliases[model.id])
        if model.context_window is not None:
            document["context_window"] = model.context_window
        documents.append(document)
    return documents


def with_relay_id(facts: bytes, relay_id: str) -> bytes:
    """The body of a heartbeat: ``facts`` with the relay that speaks."""
    return facts[:-1] + b',"relay_id":' + canonical(relay_id) + b"}"
